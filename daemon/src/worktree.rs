//! The door to what is known of a work tree.
//!
//! Callers ask [`Worktrees`] and get plain facts; that a picture of each project is kept live by watching it is known
//! only behind this door. An answer has [`PATIENCE`]: what is not known by then is said to be missing, never
//! guessed, while a first look at a large tree goes on for the next call.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gix::hash::Kind as HashKind;
use protocol::hello::{ProjectStatus, WatcherStatus};

use crate::cache::Cache;
use crate::checkpoint::facts::{Facts, Since};
use crate::checkpoint::model::Checkpoint;
use crate::content::Contents;
use crate::git;
use crate::live::{Picture, Project};
use crate::watch::{Pending, Watcher};

/// How long a call waits for the facts (contract §2: a load names what it could not check).
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an examination that was told to end may take to do so.
const GRACE: Duration = Duration::from_millis(500);
/// How quiet a project must be before it is looked at ahead of the next call.
const QUIET: Duration = Duration::from_millis(50);
/// Projects nobody asked about for this long are let go.
const IDLE: Duration = Duration::from_secs(3600);
/// Projects that are kept; beyond that, the one that was asked about longest ago is let go.
const MAX_PROJECTS: usize = 64;

/// What is known of work trees.
#[derive(Clone, Default)]
pub(crate) struct Worktrees(Arc<Shared>);

#[derive(Default)]
struct Shared {
    watcher: Option<Arc<Watcher>>,
    cache: Option<Arc<Cache>>,
    projects: Mutex<HashMap<PathBuf, Arc<Kept>>>,
}

/// A project that is kept between calls.
struct Kept {
    project: Mutex<Project>,
    used: Mutex<Instant>,
}

impl std::fmt::Debug for Worktrees {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Worktrees")
            .field(&lock(&self.0.projects).len())
            .finish()
    }
}

impl Worktrees {
    /// Remembers hashes in `state`, and keeps projects live by a watcher whose cookies are made in `jar`, where there is
    /// one.
    pub(crate) fn keeping(jar: Option<PathBuf>, state: Option<&Path>) -> Worktrees {
        let watcher = jar.and_then(|jar| {
            Watcher::new(jar)
                .inspect_err(|error| tracing::warn!(%error, "nothing can be watched"))
                .ok()
        });
        Worktrees(Arc::new(Shared {
            watcher: watcher.map(Arc::new),
            cache: state.and_then(Cache::open).map(Arc::new),
            projects: Mutex::default(),
        }))
    }

    /// The facts of `root` now, with the content of what git lists and of `paths`. `ours` are the checkpoint
    /// files that will be written: whether git would see them is found out as well.
    pub(crate) async fn settle(&self, root: &Path, paths: Vec<String>, ours: Vec<String>) -> Facts {
        let asked = Asked {
            paths,
            ours,
            saved_head: None,
        };
        self.ask(root, asked).await.0
    }

    /// The facts of `root` now, and how they relate to what `checkpoint` recorded.
    pub(crate) async fn compare(&self, root: &Path, checkpoint: &Checkpoint) -> (Facts, Since) {
        let asked = Asked {
            paths: checkpoint
                .modified_files
                .iter()
                .map(|record| record.path.clone())
                .collect(),
            ours: Vec::new(),
            saved_head: checkpoint.git.as_ref().map(|git| git.head.clone()),
        };
        self.ask(root, asked).await
    }

    /// The root's checkpoint files that git tracks.
    pub(crate) async fn tracked(&self, root: &Path) -> BTreeSet<String> {
        let root = root.to_path_buf();
        bounded(move |_| match git::open(&root) {
            Ok(Some(repository)) => repository.tracked_checkpoints(),
            _ => BTreeSet::new(),
        })
        .await
        .unwrap_or_default()
    }

    /// How each project is.
    pub(crate) fn status(&self) -> (Vec<ProjectStatus>, Option<WatcherStatus>) {
        let projects = lock(&self.0.projects);
        let mut statuses: Vec<ProjectStatus> = projects
            .iter()
            .map(|(root, kept)| {
                let (state, reason, watches) = match kept.project.try_lock() {
                    Ok(project) => {
                        let (state, reason) = project.state();
                        (state, reason.map(str::to_owned), project.watches())
                    }
                    Err(_) => ("scanning", None, 0),
                };
                ProjectStatus {
                    root: root.to_string_lossy().into_owned(),
                    state: state.to_owned(),
                    reason,
                    watches,
                }
            })
            .collect();
        statuses.sort_by(|a, b| a.root.cmp(&b.root));
        let watcher = self.0.watcher.as_ref().map(|watcher| WatcherStatus {
            watches: watcher.watches(),
            rescans: watcher.doubts(),
        });
        (statuses, watcher)
    }

    async fn ask(&self, root: &Path, asked: Asked) -> (Facts, Since) {
        let kept = self.kept(root);
        let asked = Arc::new(asked);
        let arrived = Instant::now();
        let (place, question) = (root.to_path_buf(), asked.clone());
        let whole = bounded(move |late| {
            let mut project = lock(&kept.project);
            examine(&mut project, &place, &question, arrived, late)
        });
        match whole.await {
            Some(answer) => answer,
            None => {
                // What was asked for must not go without because a vast tree takes long.
                let place = root.to_path_buf();
                let facts = bounded(move |late| {
                    let mut facts = unknown();
                    let hash = git::open(&place)
                        .ok()
                        .flatten()
                        .map_or(HashKind::Sha1, |repository| repository.hash_kind());
                    let mut contents = Contents::default();
                    for path in &asked.paths {
                        let content = contents.examine(&place, path, hash, late);
                        facts.contents.insert(path.clone(), content);
                    }
                    facts
                });
                (facts.await.unwrap_or_else(unknown), Since::nothing())
            }
        }
    }

    /// The project of a root, which is kept from now on.
    fn kept(&self, root: &Path) -> Arc<Kept> {
        let mut projects = lock(&self.0.projects);
        projects.retain(|_, kept| lock(&kept.used).elapsed() < IDLE);
        if let Some(kept) = projects.get(root) {
            *lock(&kept.used) = Instant::now();
            return kept.clone();
        }
        while projects.len() >= MAX_PROJECTS {
            let oldest = projects.iter().min_by_key(|(_, kept)| *lock(&kept.used));
            let Some(oldest) = oldest.map(|(root, _)| root.clone()) else {
                break;
            };
            projects.remove(&oldest);
        }
        let project = Project::new(root, self.0.watcher.clone(), self.0.cache.clone());
        let pending = project.pending.clone();
        let kept = Arc::new(Kept {
            project: Mutex::new(project),
            used: Mutex::new(Instant::now()),
        });
        projects.insert(root.to_path_buf(), kept.clone());
        if let Some(pending) = pending {
            tokio::spawn(work_ahead(Arc::downgrade(&kept), pending));
        }
        kept
    }
}

/// Looks at what was touched once it is quiet, so that a call finds the work done. Sleeps until something is
/// touched, and ends when the project has been let go.
async fn work_ahead(kept: std::sync::Weak<Kept>, pending: Arc<Pending>) {
    loop {
        let touched = tokio::time::timeout(IDLE, pending.touched.notified()).await;
        let Some(kept) = kept.upgrade() else {
            return;
        };
        if touched.is_err() {
            continue;
        }
        tokio::time::sleep(QUIET).await;
        let work = tokio::task::spawn_blocking(move || {
            let unhurried = Arc::new(AtomicBool::new(false));
            lock(&kept.project).work_ahead(&unhurried);
        });
        if let Err(error) = work.await {
            tracing::error!(%error, "could not work ahead");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an examination is to find out.
struct Asked {
    paths: Vec<String>,
    ours: Vec<String>,
    saved_head: Option<String>,
}

fn unknown() -> Facts {
    let reason = "the work tree could not be examined in time".to_owned();
    Facts {
        warnings: vec![format!("{}.", capitalized(&reason))],
        incomplete: Some(reason),
        ..Facts::default()
    }
}

/// Runs `work` on a blocking thread and tells it when its time is up; `None` if it doesn't end even then.
async fn bounded<T: Send + 'static>(
    work: impl FnOnce(&Arc<AtomicBool>) -> T + Send + 'static,
) -> Option<T> {
    let late = Arc::new(AtomicBool::new(false));
    let flag = late.clone();
    let mut job = tokio::task::spawn_blocking(move || work(&flag));
    let result = match tokio::time::timeout(PATIENCE, &mut job).await {
        Ok(result) => result,
        Err(_) => {
            late.store(true, Ordering::Relaxed);
            tokio::time::timeout(GRACE, job).await.ok()?
        }
    };
    result
        .inspect_err(|error| tracing::error!(%error, "an examination failed"))
        .ok()
}

fn examine(
    project: &mut Project,
    root: &Path,
    asked: &Asked,
    arrived: Instant,
    late: &Arc<AtomicBool>,
) -> (Facts, Since) {
    let settled = project.settled(arrived, late, |picture, contents| {
        look(root, asked, picture, contents, late)
    });
    let (mut facts, since) = match settled {
        Ok(Some(answer)) => return answer,
        Ok(None) => (Facts::default(), Since::nothing()),
        Err(error) => {
            let mut facts = Facts::default();
            give_up_on_git(&mut facts, &error);
            (facts, Since::nothing())
        }
    };
    for path in &asked.paths {
        let content = project.content(path, late);
        facts.contents.insert(path.clone(), content);
    }
    (facts, since)
}

/// Takes the facts from the picture of a repository.
fn look(
    root: &Path,
    asked: &Asked,
    picture: Picture<'_>,
    contents: &mut Contents,
    late: &Arc<AtomicBool>,
) -> (Facts, Since) {
    let Picture {
        repository,
        head,
        listed,
    } = picture;
    let hash = repository.hash_kind();
    let mut facts = Facts {
        git: head,
        tracked: repository.tracked_checkpoints(),
        exposed: repository.exposed(root, &asked.ours),
        ..Facts::default()
    };
    for path in &asked.paths {
        let content = contents.examine(root, path, hash, late);
        facts.contents.insert(path.clone(), content);
    }
    match listed {
        Ok(listed) => {
            facts.changed = listed.changed;
            facts.renamed = listed.renamed;
            if let Some(git) = &mut facts.git {
                git.dirty = !facts.changed.is_empty();
            }
        }
        Err(error) => give_up_on_git(&mut facts, &error),
    }
    for file in &mut facts.changed {
        if !facts.contents.contains_key(&file.path) {
            let content = contents.examine(root, &file.path, hash, late);
            facts.contents.insert(file.path.clone(), content);
        }
        file.modified = contents.modified(&file.path);
    }
    let since = match &asked.saved_head {
        None => Since::nothing(),
        Some(head) => {
            let recorded: BTreeSet<&str> = asked.paths.iter().map(String::as_str).collect();
            let listed = facts.changed.iter().map(|file| file.path.as_str());
            let listed = listed.chain(facts.renamed.keys().map(String::as_str));
            let unrecorded = listed.filter(|path| !recorded.contains(path));
            git::since(repository, head, unrecorded, late)
        }
    };
    (facts, since)
}

/// Without git the rest goes on; that uncommitted files are missing must be said.
fn give_up_on_git(facts: &mut Facts, error: &git::GitError) {
    let reason = error.to_string();
    tracing::warn!(%reason, "git's facts can't be had");
    facts.warnings.push(format!(
        "{}: uncommitted files are missing here.",
        capitalized(&reason)
    ));
    facts.incomplete = Some(reason);
    match &mut facts.git {
        // Where it stood is known; whether anything is uncommitted is not, so it is not called clean.
        Some(git) if matches!(error, git::GitError::Late | git::GitError::Status(_)) => {
            git.dirty = true;
        }
        git => *git = None,
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}
