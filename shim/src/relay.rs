//! Lines from the client to the daemon and back, across the daemon's death.
//!
//! One loop: a line of the client's, a line of the daemon's, or the next daemon, whichever comes first. While
//! there is no daemon the client is still listened to; what must not get lost is in the
//! [`Conversation`], which says it to the next one. A daemon that leaves a request unanswered is looked after: one
//! that is frozen is given up like a dead one. Where no daemon can be had, a process of this client's own
//! takes its place.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Stdin, Stdout};
use tokio::time::{Instant, timeout};

use crate::connect::{Daemon, Stream, Unreachable};
use crate::conversation::{Conversation, Heard};

/// How long answers are waited for once the client has said all it will.
const FAREWELL: Duration = Duration::from_secs(10);

/// How long a request may be unanswered before the daemon is looked after, and then again.
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// How long a client whose process is gone may stay silent: its launcher may have gone alone.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(8);

/// Pumps until the client hangs up or a signal says to leave.
pub(crate) async fn run(daemon: &Daemon, stream: Stream) {
    let mut relay = Relay {
        daemon,
        peer: Peer::Connected(Box::new(stream), Vec::new()),
        stdin: Some(BufReader::new(tokio::io::stdin())),
        from_client: Vec::new(),
        stdout: tokio::io::stdout(),
        conversation: Conversation::default(),
        heard_at: Instant::now(),
        parent: Box::pin(protocol::process::parents_end()),
        is_orphan: false,
        farewell: None,
    };
    tokio::select! {
        result = relay.pump() => {
            if let Err(error) = result {
                crate::complain(&format!("the client can't be written to ({error})"));
            }
        }
        () = protocol::os::told_to_leave() => {}
    }
}

type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Stream, Unreachable>> + 'a>>;
type Looking<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// The other end.
enum Peer<'a> {
    /// With what has been read of its next line; half a line dies with the stream.
    Connected(Box<Stream>, Vec<u8>),
    Connecting(Connecting<'a>),
    /// It left a request unanswered; is it well?
    Suspect(Box<Stream>, Vec<u8>, Looking<'a>),
    /// None could be had; the next request looks again.
    Absent,
}

struct Relay<'a> {
    daemon: &'a Daemon,
    peer: Peer<'a>,
    /// `None` once the client has said all it will.
    stdin: Option<BufReader<Stdin>>,
    from_client: Vec<u8>,
    stdout: Stdout,
    conversation: Conversation,
    /// When the daemon last said something, or was first asked.
    heard_at: Instant,
    /// Ends when the process that started this one does.
    parent: Pin<Box<dyn Future<Output = ()>>>,
    is_orphan: bool,
    farewell: Option<Instant>,
}

enum Event {
    Client(Line),
    Daemon(Line),
    Connected(Result<Box<Stream>, Unreachable>),
    /// Nothing was heard for a while of what the client waits for.
    Overdue,
    Looked {
        well: bool,
    },
    Orphaned,
    TimeIsUp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Whole,
    /// The end of the stream, behind a last line without its line break.
    Unterminated,
    End,
}

impl Relay<'_> {
    /// Fails only where the client can't be written to.
    async fn pump(&mut self) -> io::Result<()> {
        loop {
            if self.stdin.is_none() && !self.conversation.is_waiting() {
                return Ok(());
            }
            if matches!(self.peer, Peer::Absent) && self.conversation.is_waiting() {
                self.peer = Peer::Connecting(Box::pin(self.daemon.connect()));
            }
            match self.event().await {
                Event::Client(line) => {
                    if line != Line::End {
                        if line == Line::Unterminated {
                            self.from_client.push(b'\n');
                        }
                        self.client_said().await?;
                        if self.is_orphan {
                            self.farewell = Some(Instant::now() + ORPHAN_PATIENCE);
                        }
                    }
                    if line != Line::Whole {
                        self.stdin = None;
                        self.farewell = Some(Instant::now() + FAREWELL);
                    }
                }
                Event::Daemon(Line::Whole) => {
                    self.heard_at = Instant::now();
                    self.daemon_said().await?;
                }
                Event::Daemon(_) => self.daemon_died(),
                Event::Connected(Ok(stream)) => self.say_again(*stream).await?,
                Event::Connected(Err(error)) => self.go_on_without(error).await?,
                Event::Overdue => self.look_after(),
                Event::Looked { well: true } => self.trust(),
                Event::Looked { well: false } => {
                    let reason = Unreachable::Failed("the daemon doesn't answer".to_owned());
                    self.go_on_without(reason).await?;
                }
                Event::Orphaned => {
                    self.is_orphan = true;
                    self.farewell = Some(Instant::now() + ORPHAN_PATIENCE);
                }
                Event::TimeIsUp => return Ok(()),
            }
        }
    }

    /// Cancel-safe in each branch: half a line stays where it is kept, a connection in the making as well.
    async fn event(&mut self) -> Event {
        let farewell = self.farewell;
        let is_orphan = self.is_orphan;
        let overdue_at = self.heard_at + LOOK_AFTER;
        let is_waiting = self.conversation.is_waiting();
        let from_client = async {
            match &mut self.stdin {
                Some(stdin) => Event::Client(read_line(stdin, &mut self.from_client).await),
                None => std::future::pending().await,
            }
        };
        let from_peer = async {
            match &mut self.peer {
                Peer::Connected(stream, line) => {
                    let overdue = async {
                        if is_waiting && stream.embedded.is_none() {
                            tokio::time::sleep_until(overdue_at).await;
                        } else {
                            std::future::pending::<()>().await;
                        }
                    };
                    tokio::select! {
                        line = read_line(&mut stream.reader, line) => Event::Daemon(line),
                        () = overdue => Event::Overdue,
                    }
                }
                Peer::Suspect(stream, line, looking) => tokio::select! {
                    line = read_line(&mut stream.reader, line) => Event::Daemon(line),
                    well = looking => Event::Looked { well },
                },
                Peer::Connecting(connecting) => Event::Connected(connecting.await.map(Box::new)),
                Peer::Absent => std::future::pending().await,
            }
        };
        let parent = &mut self.parent;
        let orphaned = async {
            if is_orphan {
                std::future::pending::<()>().await;
            }
            parent.await;
        };
        let time_is_up = async {
            match farewell {
                Some(farewell) => tokio::time::sleep_until(farewell).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = from_client => event,
            event = from_peer => event,
            () = orphaned => Event::Orphaned,
            () = time_is_up => Event::TimeIsUp,
        }
    }

    async fn client_said(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.from_client);
        if !self.conversation.is_waiting() {
            self.heard_at = Instant::now();
        }
        match self.conversation.heard(&line) {
            Heard::Forward => {
                if let Peer::Connected(stream, _) | Peer::Suspect(stream, ..) = &mut self.peer
                    && !write(stream, &line).await
                {
                    self.daemon_died();
                }
                Ok(())
            }
            Heard::Answer(answer) => self.tell_client(&answer).await,
            Heard::Drop => Ok(()),
        }
    }

    async fn daemon_said(&mut self) -> io::Result<()> {
        let (Peer::Connected(_, line) | Peer::Suspect(_, line, _)) = &mut self.peer else {
            return Ok(());
        };
        let line = std::mem::take(line);
        if self.conversation.answered(&line) {
            self.tell_client(&line).await?;
        }
        Ok(())
    }

    /// A daemon that is only slow goes on answering meanwhile.
    fn look_after(&mut self) {
        if let Peer::Connected(stream, line) = std::mem::replace(&mut self.peer, Peer::Absent) {
            let looking = Box::pin(self.daemon.is_well(stream.pid));
            self.peer = Peer::Suspect(stream, line, looking);
        }
    }

    fn trust(&mut self) {
        if let Peer::Suspect(stream, line, _) = std::mem::replace(&mut self.peer, Peer::Absent) {
            self.peer = Peer::Connected(stream, line);
            self.heard_at = Instant::now();
        }
    }

    /// Where not even a process of this client's own can be had, what it waits for is answered with the reason.
    async fn go_on_without(&mut self, daemon: Unreachable) -> io::Result<()> {
        let reason = match daemon {
            Unreachable::Failed(reason) => reason,
            Unreachable::Off => "it is switched off".to_owned(),
        };
        // Nobody may be reading it.
        let complaint = format!("{reason}; going on without a daemon");
        std::thread::spawn(move || crate::complain(&complaint));
        match self.daemon.start_embedded() {
            Ok(stream) => self.say_again(stream).await,
            Err(error) => {
                let reason = format!("{reason}; {error}");
                let answers = self.conversation.give_up_all(&reason);
                self.peer = Peer::Absent;
                self.tell_client(&answers).await
            }
        }
    }

    /// The next one is looked for when it is needed: who stopped the daemon doesn't want it back at once.
    fn daemon_died(&mut self) {
        self.peer = Peer::Absent;
    }

    /// Says everything to a new daemon that the last one may not have heard.
    async fn say_again(&mut self, mut stream: Stream) -> io::Result<()> {
        let again = self.conversation.again();
        self.tell_client(&again.client).await?;
        self.heard_at = Instant::now();
        if write(&mut stream, &again.daemon).await {
            self.peer = Peer::Connected(Box::new(stream), Vec::new());
        } else {
            self.daemon_died();
        }
        Ok(())
    }

    async fn tell_client(&mut self, lines: &[u8]) -> io::Result<()> {
        self.stdout.write_all(lines).await?;
        self.stdout.flush().await
    }
}

/// False where it can't be written to; who doesn't read for so long won't answer either.
async fn write(stream: &mut Stream, lines: &[u8]) -> bool {
    matches!(
        timeout(2 * LOOK_AFTER, stream.writer.write_all(lines)).await,
        Ok(Ok(()))
    )
}

/// Appends up to the next line break. Cancel-safe: what was read of a line stays in `line`. A stream that can't be
/// read is over.
async fn read_line<R: AsyncBufRead + Unpin>(reader: &mut R, line: &mut Vec<u8>) -> Line {
    let read = reader.read_until(b'\n', line).await;
    match (read, line.last()) {
        (Ok(_), Some(b'\n')) => Line::Whole,
        (Ok(_), Some(_)) => Line::Unterminated,
        _ => Line::End,
    }
}
