//! notify: which paths were touched, as hints.
//!
//! One watcher for all projects, so one inotify instance and one queue in order. It only takes note: a path goes
//! into the marks of the project it lies in, and whatever casts doubt on completeness (an overflow, an
//! error, a flood) marks the whole project stale. Nothing is read here and nothing is decided.
//!
//! Whether all that happened before a moment has arrived is found out with a cookie: a file made in a
//! directory of our own, whose event can only come behind all that were queued before it.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::{Config, Event, EventKindMask, RecommendedWatcher, RecursiveMode, Watcher as _};
use uuid::Uuid;

use crate::os;

/// More marks than this, and looking at everything is quicker.
const MAX_MARKS: usize = 2000;

/// The paths of one project that were touched and not yet looked at again.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) paths: HashSet<PathBuf>,
    /// Why marks alone don't tell what to look at.
    pub(crate) stale: Option<&'static str>,
}

/// The marks of a project, and a bell that rings when there are new ones.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    marks: Mutex<Marks>,
    pub(crate) touched: tokio::sync::Notify,
}

impl Pending {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was touched since the last time.
    pub(crate) fn take(&self) -> Marks {
        std::mem::take(&mut *self.marks())
    }

    fn mark(&self, path: PathBuf) {
        let mut marks = self.marks();
        if marks.paths.len() < MAX_MARKS {
            marks.paths.insert(path);
        } else {
            marks.stale = Some("too much changed at once");
        }
    }

    fn doubt(&self, reason: &'static str) {
        self.marks().stale = Some(reason);
        self.touched.notify_one();
    }
}

/// Why watching is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WatchError {
    #[error("its {needed} directories are more than this user's watches allow ({allowed})")]
    Limit { needed: usize, allowed: usize },
    #[error("watching failed ({0})")]
    Failed(String),
}

/// Where events are handed out.
#[derive(Debug, Default)]
struct Dispatch {
    projects: Mutex<Vec<(PathBuf, Arc<Pending>)>>,
    cookies: Mutex<HashMap<PathBuf, SyncSender<()>>>,
    doubts: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    watcher: RecommendedWatcher,
    /// How many projects watch a directory.
    watched: HashMap<PathBuf, usize>,
    /// Where a watch takes in all that is under it: those that there are. They stay while a project in them does, so that
    /// looking at one project again doesn't cost the others events.
    trees: HashSet<PathBuf>,
}

/// The watcher.
#[derive(Debug)]
pub(crate) struct Watcher {
    inner: Mutex<Inner>,
    dispatch: Arc<Dispatch>,
    /// Where cookies are made.
    jar: PathBuf,
    allowed: usize,
}

impl Watcher {
    /// Starts watching, with `jar` as the directory for cookies.
    pub(crate) fn new(jar: PathBuf) -> Result<Watcher, WatchError> {
        let dispatch: Arc<Dispatch> = Arc::default();
        let handler = dispatch.clone();
        // Opens and reads change nothing, and a grep would flood the queue with them. The end of a write is told for
        // the sake of those who write through a mapping, which nothing else tells of.
        let config =
            Config::default().with_event_kinds(EventKindMask::CORE | EventKindMask::ACCESS_CLOSE);
        let mut inner = RecommendedWatcher::new(move |event| handler.take(event), config)
            .map_err(|error| failed(&error))?;
        protocol::os::make_private_dir(&jar)
            .map_err(|error| WatchError::Failed(error.to_string()))?;
        inner
            .watch(&jar, RecursiveMode::NonRecursive)
            .map_err(|error| failed(&error))?;
        Ok(Watcher {
            inner: Mutex::new(Inner {
                watcher: inner,
                watched: HashMap::new(),
                trees: HashSet::new(),
            }),
            dispatch,
            jar,
            allowed: allowed_watches(),
        })
    }

    /// From now on, touched paths under `root` are marked.
    pub(crate) fn register(&self, root: &Path) -> Arc<Pending> {
        let pending: Arc<Pending> = Arc::default();
        lock(&self.dispatch.projects).push((root.to_path_buf(), pending.clone()));
        pending
    }

    /// Ends that; what was watched for it must have been unwatched.
    pub(crate) fn release(&self, pending: &Arc<Pending>) {
        let mut projects = lock(&self.dispatch.projects);
        projects.retain(|(_, known)| !Arc::ptr_eq(known, pending));
        let roots: Vec<PathBuf> = projects.iter().map(|(root, _)| root.clone()).collect();
        // Whoever has the watcher may be waiting for the projects.
        drop(projects);
        let mut inner = lock(&self.inner);
        let Inner { watcher, trees, .. } = &mut *inner;
        for tree in trees.extract_if(|tree| !roots.iter().any(|root| root.starts_with(tree))) {
            drop(watcher.unwatch(&tree));
        }
    }

    /// Watches one directory, by itself. A watch that is there already is made anew: it may be for what had this
    /// name before.
    pub(crate) fn watch(&self, path: &Path) -> Result<(), WatchError> {
        let mut inner = lock(&self.inner);
        let known = inner.watched.get(path).copied().unwrap_or_default();
        let needed = inner.watched.len() + 1;
        let limit = WatchError::Limit {
            needed,
            allowed: self.allowed,
        };
        if known == 0 && needed > self.allowed {
            return Err(limit);
        }
        if os::WATCHES_TREES {
            return self.watch_tree(&mut inner, path);
        }
        if known > 0 {
            drop(inner.watcher.unwatch(path));
        }
        match inner.watcher.watch(path, RecursiveMode::NonRecursive) {
            Ok(()) => {}
            // Gone again, or turned into something else: then there is nothing to watch, and its parent tells.
            Err(error) if is_absence(&error) => {}
            Err(error) if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) => {
                return Err(limit);
            }
            Err(error) => return Err(failed(&error)),
        }
        inner.watched.insert(path.to_path_buf(), known + 1);
        drop(inner);
        if known > 0 {
            // Whoever watched it before may have missed something in between.
            self.dispatch.mark(path);
        }
        Ok(())
    }

    /// Watches a directory with all that is under it, unless one above it is watched so.
    fn watch_tree(&self, inner: &mut Inner, path: &Path) -> Result<(), WatchError> {
        *inner.watched.entry(path.to_path_buf()).or_default() += 1;
        if path.ancestors().any(|above| inner.trees.contains(above)) {
            return Ok(());
        }
        inner
            .watcher
            .watch(path, RecursiveMode::Recursive)
            .map_err(|error| failed(&error))?;
        inner.trees.insert(path.to_path_buf());
        // The stream of events was made anew, and what happened in between is lost to the others.
        self.dispatch
            .doubt_others(path, "another project came to be watched");
        Ok(())
    }

    /// Ends the watch of one directory, which may be gone already.
    pub(crate) fn unwatch(&self, path: &Path) {
        let mut inner = lock(&self.inner);
        match inner.watched.get_mut(path) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => {
                inner.watched.remove(path);
                if !os::WATCHES_TREES
                    && let Err(error) = inner.watcher.unwatch(path)
                {
                    tracing::trace!(%error, "a watch was gone");
                }
            }
            None => {}
        }
    }

    /// Waits until every event of what was done before this call has been taken note of; false if that can't be
    /// told in time.
    pub(crate) fn caught_up(&self, patience: Duration) -> bool {
        let cookie = self.jar.join(Uuid::new_v4().simple().to_string());
        let (sender, arrived) = sync_channel(1);
        lock(&self.dispatch.cookies).insert(cookie.clone(), sender);
        let made = std::fs::File::create_new(&cookie);
        let caught_up = made.is_ok() && arrived.recv_timeout(patience).is_ok();
        lock(&self.dispatch.cookies).remove(&cookie);
        if let Err(error) = std::fs::remove_file(&cookie) {
            tracing::debug!(%error, "a cookie was gone");
        }
        caught_up
    }

    /// Watches in use.
    pub(crate) fn watches(&self) -> usize {
        lock(&self.inner).watched.len()
    }

    /// How often everything was in doubt.
    pub(crate) fn doubts(&self) -> u64 {
        self.dispatch.doubts.load(Ordering::Relaxed)
    }
}

impl Dispatch {
    fn take(&self, event: notify::Result<Event>) {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(%error, "the watcher failed");
                return self.doubt("the watcher failed");
            }
        };
        if event.need_rescan() {
            return self.doubt("the watcher's queue overflowed");
        }
        for path in event.paths {
            if let Some(cookie) = lock(&self.cookies).get(&path) {
                // Whoever waited may have given up.
                let _waiting = cookie.try_send(());
                continue;
            }
            self.mark(&path);
        }
    }

    fn mark(&self, path: &Path) {
        let projects = lock(&self.projects);
        for (_, pending) in projects.iter().filter(|(root, _)| path.starts_with(root)) {
            pending.mark(path.to_path_buf());
            pending.touched.notify_one();
        }
    }

    fn doubt(&self, reason: &'static str) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
        for (_, pending) in lock(&self.projects).iter() {
            pending.doubt(reason);
        }
    }

    /// Doubts every project that doesn't begin to be watched right now.
    fn doubt_others(&self, beginning: &Path, reason: &'static str) {
        let projects = lock(&self.projects);
        for (_, pending) in projects.iter().filter(|(root, _)| root != beginning) {
            pending.doubt(reason);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: &notify::Error) -> WatchError {
    WatchError::Failed(error.to_string())
}

fn is_absence(error: &notify::Error) -> bool {
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => matches!(
            error.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
        ),
        _ => false,
    }
}

/// Half of what the system lets this user watch: the other half is for the editor.
fn allowed_watches() -> usize {
    std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
        .ok()
        .and_then(|text| text.trim().parse::<usize>().ok())
        .map_or(usize::MAX, |most| most / 2)
}
