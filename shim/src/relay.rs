//! Lines from the client to the daemon and back, across the daemon's death.
//!
//! One loop: a line of the client's, a line of the daemon's, or the next daemon, whichever comes first. While
//! there is no daemon the client is still listened to; what must not get lost is in the
//! [`Conversation`], which says it to the next one.

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Stdin, Stdout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::connect::{Daemon, Stream, Unreachable};
use crate::conversation::{Conversation, Heard};

/// How long answers are waited for once the client has said all it will.
const FAREWELL: Duration = Duration::from_secs(10);

/// Pumps until the client hangs up or a signal says to leave.
pub(crate) async fn run(daemon: &Daemon, stream: Stream) {
    let mut relay = Relay {
        daemon,
        peer: Peer::Connected(Box::new(stream), Vec::new()),
        stdin: Some(BufReader::new(tokio::io::stdin())),
        from_client: Vec::new(),
        stdout: tokio::io::stdout(),
        conversation: Conversation::default(),
        farewell: None,
    };
    tokio::select! {
        result = relay.pump() => {
            if let Err(error) = result {
                crate::complain(&format!("the client can't be written to ({error})"));
            }
        }
        () = told_to_leave() => {}
    }
}

async fn told_to_leave() {
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals.map(signal) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

type Connecting<'a> = Pin<Box<dyn Future<Output = Result<Stream, Unreachable>> + 'a>>;

/// The other end.
enum Peer<'a> {
    /// With what has been read of its next line; half a line dies with the stream.
    Connected(Box<Stream>, Vec<u8>),
    Connecting(Connecting<'a>),
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
    farewell: Option<Instant>,
}

enum Event {
    Client(Line),
    Daemon(Line),
    Connected(Result<Stream, Unreachable>),
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
                    }
                    if line != Line::Whole {
                        self.stdin = None;
                        self.farewell = Some(Instant::now() + FAREWELL);
                    }
                }
                Event::Daemon(Line::Whole) => self.daemon_said().await?,
                Event::Daemon(_) => self.daemon_died(),
                Event::Connected(Ok(stream)) => self.say_again(stream).await?,
                Event::Connected(Err(error)) => {
                    let reason = match error {
                        Unreachable::Failed(reason) => reason,
                        Unreachable::Off => "it is switched off".to_owned(),
                    };
                    let answers = self.conversation.give_up_all(&reason);
                    self.tell_client(&answers).await?;
                    self.peer = Peer::Absent;
                }
                Event::TimeIsUp => return Ok(()),
            }
        }
    }

    /// Cancel-safe in each branch: half a line stays where it is kept, a connection in the making as well.
    async fn event(&mut self) -> Event {
        let farewell = self.farewell;
        let from_client = async {
            match &mut self.stdin {
                Some(stdin) => Event::Client(read_line(stdin, &mut self.from_client).await),
                None => std::future::pending().await,
            }
        };
        let from_peer = async {
            match &mut self.peer {
                Peer::Connected(stream, line) => {
                    Event::Daemon(read_line(&mut stream.reader, line).await)
                }
                Peer::Connecting(connecting) => Event::Connected(connecting.await),
                Peer::Absent => std::future::pending().await,
            }
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
            () = time_is_up => Event::TimeIsUp,
        }
    }

    async fn client_said(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.from_client);
        match self.conversation.heard(&line) {
            Heard::Forward => {
                if let Peer::Connected(stream, _) = &mut self.peer
                    && stream.writer.write_all(&line).await.is_err()
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
        let Peer::Connected(_, line) = &mut self.peer else {
            return Ok(());
        };
        let line = std::mem::take(line);
        if self.conversation.answered(&line) {
            self.tell_client(&line).await?;
        }
        Ok(())
    }

    /// The next one is looked for when it is needed: who stopped the daemon doesn't want it back at once.
    fn daemon_died(&mut self) {
        self.peer = Peer::Absent;
    }

    /// Says everything to a new daemon that the last one may not have heard.
    async fn say_again(&mut self, mut stream: Stream) -> io::Result<()> {
        let again = self.conversation.again();
        self.tell_client(&again.client).await?;
        if stream.writer.write_all(&again.daemon).await.is_ok() {
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
