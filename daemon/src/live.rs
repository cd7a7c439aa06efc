//! One project's picture, kept live.
//!
//! *Cold* until somebody asks; then every directory in which something can appear is watched, and only then is git
//! asked about everything, so that nothing slips in between. From then on the project is *live*: what
//! the watcher marked is looked at again, path by path, and the rest is known. Whatever a mark can't
//! express makes it *stale*, and everything is asked again: HEAD, the index, a configuration or an ignore file
//! that changed, a flood of marks, a watcher in doubt, a root that is another directory now. Where
//! events can't be trusted or had, git is asked at each call (*examined*): slower, and right.
//!
//! Events are hints. What a call is told of is checked against the disk at that moment: the control
//! files by their signatures, and the content of every path by its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gix::bstr::{BString, ByteSlice as _};
use protocol::files;

use crate::cache::Cache;
use crate::checkpoint::facts::Content;
use crate::checkpoint::model::GitState;
use crate::content::Contents;
use crate::dir::{self, Signature, Stat};
use crate::git::{self, GitError, Listed, Listing, Repository};
use crate::watch::{Pending, WatchError, Watcher};

/// How long the watcher may take to catch up with the disk.
const COOKIE_PATIENCE: Duration = Duration::from_millis(1000);

/// A project.
pub(crate) struct Project {
    root: PathBuf,
    watcher: Option<Arc<Watcher>>,
    pub(crate) pending: Option<Arc<Pending>>,
    state: State,
    contents: Contents,
    /// When the picture was last brought up to date: whoever came before that began needs nothing newer.
    current_at: Option<Instant>,
}

enum State {
    Cold,
    Live(Box<Live>),
    /// Why it can't be live.
    Examined(String),
}

struct Live {
    repository: Repository,
    listing: Listing,
    watched: BTreeSet<PathBuf>,
    /// Directories with a `.git` of their own. What happens in that is not watched, and whether it makes them
    /// repositories may change with it (it is not made in one step), so they are looked at each time.
    nested: BTreeSet<PathBuf>,
    root: Identity,
    head: Option<String>,
    control: BTreeMap<PathBuf, Option<Signature>>,
    has_submodules: bool,
}

/// What makes a directory the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, u64);

/// What is known of the project at the moment of a call.
pub(crate) struct Picture<'a> {
    pub(crate) repository: &'a Repository,
    pub(crate) head: Option<GitState>,
    pub(crate) listed: Result<Listed, GitError>,
}

impl Project {
    pub(crate) fn new(
        root: &Path,
        watcher: Option<Arc<Watcher>>,
        cache: Option<Arc<Cache>>,
    ) -> Project {
        Project {
            root: root.to_path_buf(),
            pending: watcher.as_ref().map(|watcher| watcher.register(root)),
            watcher,
            state: State::Cold,
            contents: Contents::new(cache),
            current_at: None,
        }
    }

    /// Which state it is in, and why.
    pub(crate) fn state(&self) -> (&'static str, Option<&str>) {
        match &self.state {
            State::Cold => ("cold", None),
            State::Live(_) => ("live", None),
            State::Examined(reason) => ("examined", Some(reason)),
        }
    }

    /// Directories that are watched for it.
    pub(crate) fn watches(&self) -> usize {
        match &self.state {
            State::Live(live) => live.watched.len(),
            _ => 0,
        }
    }

    /// Brings the picture up to `arrived`, when somebody began to wait, and hands it to `use_it`; `None` outside git.
    pub(crate) fn settled<T>(
        &mut self,
        arrived: Instant,
        late: &Arc<AtomicBool>,
        use_it: impl FnOnce(Picture<'_>, &mut Contents) -> T,
    ) -> Result<Option<T>, GitError> {
        self.contents.begin();
        let is_current = self.current_at.is_some_and(|current| current >= arrived);
        if !is_current || !matches!(self.state, State::Live(_)) {
            let begun = Instant::now();
            self.current_at = None;
            self.bring_up_to_date(late)?;
            self.current_at = Some(begun);
        }
        if let State::Live(live) = &self.state {
            let picture = Picture {
                head: live.repository.head()?,
                listed: Ok(live.listing.listed(&live.repository)),
                repository: &live.repository,
            };
            return Ok(Some(use_it(picture, &mut self.contents)));
        }
        let Some(repository) = git::open(&self.root)? else {
            return Ok(None);
        };
        let picture = Picture {
            head: repository.head()?,
            listed: git::list(&repository, late),
            repository: &repository,
        };
        Ok(Some(use_it(picture, &mut self.contents)))
    }

    /// Makes the picture live where there can be one, and current where it is live.
    fn bring_up_to_date(&mut self, late: &Arc<AtomicBool>) -> Result<(), GitError> {
        let (Some(watcher), Some(pending)) = (self.watcher.clone(), self.pending.clone()) else {
            return Ok(());
        };
        if let State::Live(live) = &mut self.state
            && let Err(reason) = live.update(&self.root, &watcher, &pending, late)
        {
            tracing::debug!(root = %self.root.display(), reason, "stale");
            self.cool();
        }
        if matches!(self.state, State::Cold) {
            match Live::scan(&self.root, &watcher, &pending) {
                Ok(Some(live)) => self.state = State::Live(Box::new(live)),
                Ok(None) => {}
                Err(ScanError::Git(error)) => return Err(error),
                Err(ScanError::Watch(error)) => {
                    tracing::warn!(root = %self.root.display(), %error, "can't be watched");
                    self.state = State::Examined(error.to_string());
                }
                Err(ScanError::Distrust(reason)) => self.state = State::Examined(reason),
            }
        }
        Ok(())
    }

    /// Looks at what was marked, ahead of the next call.
    pub(crate) fn work_ahead(&mut self, late: &Arc<AtomicBool>) {
        if !matches!(self.state, State::Live(_)) {
            return;
        }
        let root = &self.root.clone();
        let settled = self.settled(Instant::now(), late, |picture, contents| {
            let hash = picture.repository.hash_kind();
            let listed = picture.listed.unwrap_or_default();
            for file in &listed.changed {
                contents.examine(root, &file.path, hash, late);
            }
        });
        if let Err(error) = settled {
            tracing::debug!(%error, "could not work ahead");
        }
    }

    fn cool(&mut self) {
        if let (State::Live(live), Some(watcher)) = (&self.state, &self.watcher) {
            for path in &live.watched {
                watcher.unwatch(path);
            }
        }
        self.state = State::Cold;
    }
}

impl Project {
    /// The content at a path outside git, or where git can't be read.
    pub(crate) fn content(&mut self, path: &str, late: &AtomicBool) -> Content {
        self.contents
            .examine(&self.root, path, gix::hash::Kind::Sha1, late)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        self.cool();
        if let (Some(watcher), Some(pending)) = (&self.watcher, &self.pending) {
            watcher.release(pending);
        }
    }
}

/// Why there is no live picture.
enum ScanError {
    Git(GitError),
    Watch(WatchError),
    Distrust(String),
}

impl From<GitError> for ScanError {
    fn from(error: GitError) -> ScanError {
        ScanError::Git(error)
    }
}

impl Live {
    /// Watches, then asks git about everything. It takes the time it needs: a caller in a hurry leaves, and the next
    /// one finds it done.
    fn scan(
        root: &Path,
        watcher: &Arc<Watcher>,
        pending: &Arc<Pending>,
    ) -> Result<Option<Live>, ScanError> {
        let Some(repository) = git::open(root)? else {
            return Ok(None);
        };
        if let Some(reason) = dir::distrusted(root) {
            return Err(ScanError::Distrust(reason));
        }
        let control = signatures(repository.control_files(root));
        let head = head_of(&repository)?;
        // What was marked before belongs to an older picture.
        drop(pending.take());
        let mut watched = BTreeSet::new();
        let entered = watch_under(root, root, &repository, watcher, &mut watched);
        let listing = entered.and_then(|()| {
            let unhurried = Arc::new(AtomicBool::new(false));
            Ok(Listing::new(&repository, &unhurried)?)
        });
        match listing {
            Ok(listing) => Ok(Some(Live {
                has_submodules: repository.has_submodules(),
                root: identity(root).map_err(|error| GitError::Status(error.to_string()))?,
                repository,
                listing,
                nested: nested_in(root, &watched),
                watched,
                head,
                control,
            })),
            Err(error) => {
                for path in &watched {
                    watcher.unwatch(path);
                }
                Err(error)
            }
        }
    }

    /// Brings the picture up to date, or says why that takes a new one.
    fn update(
        &mut self,
        root: &Path,
        watcher: &Arc<Watcher>,
        pending: &Arc<Pending>,
        late: &Arc<AtomicBool>,
    ) -> Result<(), &'static str> {
        if identity(root).ok() != Some(self.root) {
            return Err("the root is another directory now");
        }
        if !watcher.caught_up(COOKIE_PATIENCE) {
            return Err("the watcher didn't catch up");
        }
        let marks = pending.take();
        if let Some(reason) = marks.stale {
            return Err(reason);
        }
        let moved = self
            .control
            .iter()
            .any(|(path, then)| signature_of(path) != *then);
        if moved {
            return Err("index, HEAD, configuration or ignore rules changed");
        }
        if head_of(&self.repository).ok().as_ref() != Some(&self.head) {
            return Err("HEAD moved");
        }
        let mut touched: BTreeSet<BString> = BTreeSet::new();
        for path in marks.paths {
            match self.classify(root, &path) {
                Touched::Nothing => {}
                Touched::Rules => return Err("what changed concerns other paths too"),
                Touched::Path(place) => {
                    if self.is_directory(&place) {
                        self.watch_again(root, &place, watcher)
                            .map_err(|_| "directories could not be watched")?;
                    }
                    touched.extend(git::path_in_root(root, &place));
                }
            }
        }
        touched.extend(
            self.nested
                .iter()
                .filter_map(|path| git::path_in_root(root, path)),
        );
        // Of paths under each other, the upper one covers all.
        let upper = without_nested(touched);
        if !upper.is_empty()
            && self
                .listing
                .refresh(&self.repository, &upper, late)
                .is_err()
        {
            return Err("what changed could not be looked at in time");
        }
        if self.has_submodules
            && self
                .listing
                .refresh_submodules(&self.repository, late)
                .is_err()
        {
            return Err("submodules could not be looked at in time");
        }
        Ok(())
    }

    fn classify(&self, root: &Path, path: &Path) -> Touched {
        let Ok(relative) = path.strip_prefix(root) else {
            return Touched::Nothing;
        };
        let mut place = root.to_path_buf();
        let mut parts = relative.components().peekable();
        while let Some(part) = parts.next() {
            let name = part.as_os_str();
            if name.to_str().is_some_and(files::is_ours) {
                return Touched::Nothing;
            }
            if name == ".git" {
                // A repository came to be, or ceased to be one: at the root that is everything.
                return if place == root {
                    Touched::Rules
                } else {
                    Touched::Path(place)
                };
            }
            place.push(name);
            // Where a link has taken a directory's place, an event behind it may be of what was there or of what the link
            // leads to, whose one watch may have got this name.
            if parts.peek().is_some() && place.is_symlink() {
                return Touched::Rules;
            }
            // What happens inside another repository shows as that repository or not at all.
            if parts.peek().is_some() && place.join(".git").symlink_metadata().is_ok() {
                return Touched::Path(place);
            }
        }
        match place.file_name().and_then(|name| name.to_str()) {
            Some(".gitignore" | ".gitattributes" | ".gitmodules") => Touched::Rules,
            _ if place == root => Touched::Nothing,
            _ => Touched::Path(place),
        }
    }

    /// Whether a path is a directory, or was one when it was last looked at.
    fn is_directory(&self, path: &Path) -> bool {
        self.watched.contains(path)
            || path
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_dir())
    }

    /// A directory came, went, or is another one: the watches under it are made anew, since they stay with
    /// what they were made for wherever that was moved.
    fn watch_again(
        &mut self,
        root: &Path,
        path: &Path,
        watcher: &Arc<Watcher>,
    ) -> Result<(), ScanError> {
        let under: Vec<PathBuf> = self
            .watched
            .range(path.to_path_buf()..)
            .take_while(|known| known.starts_with(path))
            .cloned()
            .collect();
        for known in under {
            watcher.unwatch(&known);
            self.watched.remove(&known);
            self.nested.remove(&known);
        }
        if !path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir())
        {
            return Ok(());
        }
        if self.repository.is_ignored_directory(root, path) {
            return Ok(());
        }
        let mut watched = BTreeSet::new();
        let result = watch_under(root, path, &self.repository, watcher, &mut watched);
        self.nested.extend(nested_in(root, &watched));
        self.watched.extend(watched);
        result
    }
}

enum Touched {
    Nothing,
    /// Something that changes what is listed elsewhere.
    Rules,
    Path(PathBuf),
}

fn watch_under(
    root: &Path,
    from: &Path,
    repository: &Repository,
    watcher: &Arc<Watcher>,
    watched: &mut BTreeSet<PathBuf>,
) -> Result<(), ScanError> {
    let mut failure = None;
    let mut seen = BTreeSet::new();
    let walked = repository.directories(root, from, |directory| {
        // A directory that is mounted in two places has one watch, and its events name one place.
        let first =
            identity(&directory).is_ok_and(|Identity(device, inode)| seen.insert((device, inode)));
        let result = match watcher.watch(&directory) {
            _ if !first && directory.exists() => Err(ScanError::Distrust(format!(
                "`{}` is in it twice, by a mount",
                directory.display()
            ))),
            Ok(()) => {
                watched.insert(directory);
                Ok(())
            }
            Err(error) => Err(ScanError::Watch(error)),
        };
        failure = result.err();
        failure.is_none()
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(walked?),
    }
}

fn nested_in(root: &Path, watched: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    watched
        .iter()
        .filter(|path| *path != root && path.join(".git").symlink_metadata().is_ok())
        .cloned()
        .collect()
}

/// Paths that lie under no other one of them.
fn without_nested(paths: BTreeSet<BString>) -> BTreeSet<BString> {
    let mut upper: BTreeSet<BString> = BTreeSet::new();
    for path in paths {
        let covered = path
            .find_iter("/")
            .any(|end| upper.contains(path[..end].as_bstr()));
        if !covered {
            upper.insert(path);
        }
    }
    upper
}

fn head_of(repository: &Repository) -> Result<Option<String>, GitError> {
    Ok(repository.head()?.map(|head| head.head))
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    let (device, inode) = Stat::at(path)?.identity();
    Ok(Identity(device, inode))
}

fn signatures(paths: Vec<PathBuf>) -> BTreeMap<PathBuf, Option<Signature>> {
    paths
        .into_iter()
        .map(|path| {
            let signature = signature_of(&path);
            (path, signature)
        })
        .collect()
}

fn signature_of(path: &Path) -> Option<Signature> {
    Some(Stat::behind(path).ok()?.signature())
}
