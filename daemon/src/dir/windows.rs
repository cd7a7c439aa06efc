//! Directory handles on Windows.
//!
//! There are no calls relative to a handle, so names are joined to the directory's path, in the form that is taken as
//! it is (`\\?\`: no device names, no trailing dots). The handle is open for no one to rename or remove it meanwhile,
//! nor any directory above it, so the path stays this one's.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::windows::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::windows::io::AsRawHandle as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::files;
use protocol::os::{self, Access, wide};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_LOCK_VIOLATION, ERROR_SHARING_VIOLATION, FILETIME, GENERIC_READ,
    GENERIC_WRITE,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_REPARSE_POINT,
    FILE_BASIC_INFO, FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_LIST_DIRECTORY,
    FILE_READ_ATTRIBUTES, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_TYPE_DISK, FileBasicInfo,
    GetFileInformationByHandle, GetFileInformationByHandleEx, GetFileType, LOCKFILE_EXCLUSIVE_LOCK,
    LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, MOVEFILE_REPLACE_EXISTING, MOVEFILE_WRITE_THROUGH,
    MoveFileExW, WRITE_DAC,
};
use windows_sys::Win32::System::IO::{OVERLAPPED, OVERLAPPED_0, OVERLAPPED_0_0};

use super::{FileRead, ReadError, Signature, fault};

/// How often a file's names are looked at before it counts as linked to something else.
const LINK_LOOKS: usize = 3;
/// How often a waiting writer asks for the lock again, and for a file that somebody has open.
const POLL: Duration = Duration::from_millis(5);
/// How long a scanner or an indexer that has a file open is waited for.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// The byte that a lock is on, far behind any content: what is locked can't be read.
const LOCKED_BYTE: u32 = 0x4000_0000;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir {
    path: PathBuf,
    #[expect(dead_code, reason = "held, not used")]
    handle: File,
}

/// A lock that ends when it is dropped, or with its process.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held, not used")] File);

impl Dir {
    /// Opens a real directory; a link in its place is refused.
    pub(crate) fn open(path: &Path) -> io::Result<Dir> {
        let handle = File::options()
            .access_mode(FILE_LIST_DIRECTORY | FILE_READ_ATTRIBUTES)
            .share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE)
            .custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)
            .open(path)?;
        if !Stat::of(&handle)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Dir {
            path: path.canonicalize()?,
            handle,
        })
    }

    /// Opens a real directory in this one.
    pub(crate) fn open_dir(&self, name: &str) -> io::Result<Dir> {
        Dir::open(&self.path.join(name))
    }

    /// Makes a directory for this user alone, unless it exists.
    pub(crate) fn make_dir(&self, name: &str) -> io::Result<()> {
        os::make_private_dir(&self.path.join(name))
    }

    /// Who is let into a directory that is there already is its owner's decision: a list has no few bits to correct.
    #[expect(
        clippy::unnecessary_wraps,
        clippy::unused_self,
        reason = "elsewhere it does"
    )]
    pub(crate) fn make_private(&self) -> io::Result<()> {
        Ok(())
    }

    /// The names in it, in no order; what is no Unicode can't be ours and is left out.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// What stands at a name, without following a link: its device and inode, or `None` where nothing does.
    pub(crate) fn inode(&self, name: &str) -> io::Result<Option<(u64, u64)>> {
        match Stat::at(&self.path.join(name)) {
            Ok(stat) => Ok(Some(stat.identity())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a regular file that has one name, or a second one which is `twin` or a temporary name of a writer: at
    /// most `most` bytes.
    pub(crate) fn read(&self, name: &str, twin: &str, most: u64) -> Result<FileRead, ReadError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::Missing,
            _ => ReadError::Io(error),
        };
        let path = self.path.join(name);
        // Looked at before it is opened: opening a device can do things.
        check_type(&Stat::at(&path).map_err(failed)?)?;
        let file = patiently(|| os::open_regular(&path)).map_err(failed)?;
        check_type(&Stat::of(&file).map_err(ReadError::Io)?)?;
        self.check_links(&file, twin)?;
        let mut bytes = Vec::new();
        (&file)
            .take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(ReadError::Io)?;
        if bytes.len() as u64 > most {
            return Err(ReadError::TooLarge(most));
        }
        // What an administrator makes belongs to all of them.
        let foreign_owner =
            os::owner_of(&file).filter(|owner| *owner != os::user() && !owner.is_system());
        Ok(FileRead {
            bytes,
            foreign_owner,
        })
    }

    /// Refuses a file that something else has by a hard link. While a writer makes it the backup it has two names,
    /// and which they are changes under our eyes: so a look that finds too many is repeated.
    fn check_links(&self, file: &File, twin: &str) -> Result<(), ReadError> {
        let mut links = 0;
        for _ in 0..LINK_LOOKS {
            let stat = Stat::of(file).map_err(ReadError::Io)?;
            links = stat.links;
            let own = Some(stat.identity());
            if links <= 1 {
                return Ok(());
            }
            let is_own = |name: &str| self.inode(name).is_ok_and(|inode| inode == own);
            let names = self.names().map_err(ReadError::Io)?;
            let mut temporary = names
                .iter()
                .filter(|name| name.starts_with(files::TEMPORARY));
            if links == 2 && (is_own(twin) || temporary.any(|name| is_own(name))) {
                return Ok(());
            }
        }
        Err(ReadError::Linked(links))
    }

    /// Makes a new file for this user alone and writes it durably; fails where anything has that name. What was
    /// being done when it failed is told with the error.
    pub(crate) fn write_new(
        &self,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), (&'static str, io::Error)> {
        let mut file = self
            .create(name)
            .map_err(|e| ("create a temporary file for", e))?;
        fault::point("write")
            .and_then(|()| file.write_all(bytes))
            .map_err(|e| ("write", e))?;
        fault::point("sync file")
            .and_then(|()| file.sync_all())
            .map_err(|e| ("sync", e))
    }

    fn create(&self, name: &str) -> io::Result<File> {
        fault::point("create")?;
        let file = os::private(
            File::options()
                .write(true)
                .create_new(true)
                .access_mode(GENERIC_WRITE | WRITE_DAC),
        )
        .open(self.path.join(name))?;
        Access::to_directory()?.give(&file)?;
        Ok(file)
    }

    /// Takes access to a file from everybody else.
    pub(crate) fn make_file_private(&self, name: &str) -> io::Result<()> {
        let file = os::private(File::options().access_mode(GENERIC_READ | WRITE_DAC))
            .open(self.path.join(name))?;
        let stat = Stat::of(&file)?;
        if stat.is_file() && stat.links == 1 {
            Access::to_directory()?.give(&file)?;
        }
        Ok(())
    }

    /// Gives a file another name, replacing what has that, durably.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fault::point("rename")?;
        let (from, to) = (self.path.join(from), self.path.join(to));
        patiently(|| {
            replace(&from, &to).map_err(|error| match Stat::at(&to) {
                Ok(stat) if stat.is_dir() => io::ErrorKind::IsADirectory.into(),
                _ => error,
            })
        })
    }

    /// Gives a file a second name.
    pub(crate) fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fault::point("link")?;
        std::fs::hard_link(self.path.join(from), self.path.join(to))
    }

    /// Removes a name, if it is there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fault::point("remove")?;
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// A name is durable when it is given ([`Dir::rename`]); directories can't be synced here.
    #[expect(clippy::unused_self, reason = "elsewhere it does")]
    pub(crate) fn sync(&self) -> io::Result<()> {
        fault::point("sync directory")
    }

    /// Takes the lock that `name` stands for, until `deadline`; the inner error, if somebody holds it all that time, is
    /// their process id, where it is known.
    pub(crate) fn lock(
        &self,
        name: &str,
        deadline: Instant,
    ) -> io::Result<Result<Lock, Option<u32>>> {
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let file = patiently(|| os::private(&mut options).open(self.path.join(name)))?;
        loop {
            match try_lock(&file) {
                Ok(()) => {
                    let holder = format!("{:<10}\n", std::process::id());
                    // It only helps those who wait in vain to say for whom.
                    let _written = file.seek_write(holder.as_bytes(), 0);
                    return Ok(Ok(Lock(file)));
                }
                Err(error) if is_code(&error, ERROR_LOCK_VIOLATION) => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                let mut holder = [0; 10];
                let read = file.seek_read(&mut holder, 0).unwrap_or(0);
                let holder = str::from_utf8(&holder[..read]).ok();
                // It wrote last; one that is gone, or waits itself, doesn't hold it.
                let holder = holder
                    .and_then(|pid| pid.trim().parse().ok())
                    .filter(|pid| *pid != std::process::id() && crate::os::is_alive(*pid));
                return Ok(Err(holder));
            }
            std::thread::sleep(POLL);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "the standard library's lock makes the file unreadable"
)]
fn try_lock(file: &File) -> io::Result<()> {
    let mut place = OVERLAPPED {
        Anonymous: OVERLAPPED_0 {
            Anonymous: OVERLAPPED_0_0 {
                Offset: 0,
                OffsetHigh: LOCKED_BYTE,
            },
        },
        ..OVERLAPPED::default()
    };
    let flags = LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY;
    // SAFETY: the file is not opened for overlapped operations, so the place is used until the call returns alone.
    let locked = unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) };
    told(locked)
}

#[expect(
    unsafe_code,
    reason = "the standard library's rename is not written through"
)]
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    let flags = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
    let (from, to) = (wide(from.as_os_str()), wide(to.as_os_str()));
    // SAFETY: both paths end with a zero.
    told(unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), flags) })
}

/// Does it again while somebody has the file open: virus scanners and indexers have each new one for a moment.
fn patiently<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + BUSY_PATIENCE;
    loop {
        match act() {
            Err(error)
                if (is_code(&error, ERROR_ACCESS_DENIED)
                    || is_code(&error, ERROR_SHARING_VIOLATION))
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(POLL);
            }
            done => return done,
        }
    }
}

fn is_code(error: &io::Error, code: u32) -> bool {
    error.raw_os_error() == Some(code.cast_signed())
}

fn told(success: i32) -> io::Result<()> {
    match success {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn check_type(stat: &Stat) -> Result<(), ReadError> {
    Err(ReadError::NotRegular(match stat {
        stat if stat.is_file() => return Ok(()),
        stat if stat.is_symlink() => "a symbolic link",
        stat if stat.is_dir() => "a directory",
        _ => "of unknown type",
    }))
}

/// What stands at a path, or is open.
#[derive(Debug)]
pub(crate) struct Stat {
    attributes: u32,
    is_on_disk: bool,
    size: u64,
    links: u64,
    identity: (u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stat {
    /// Of a path, without following a link.
    pub(crate) fn at(path: &Path) -> io::Result<Stat> {
        Stat::open(
            path,
            FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT,
        )
    }

    /// Of what a path leads to.
    pub(crate) fn behind(path: &Path) -> io::Result<Stat> {
        Stat::open(path, FILE_FLAG_BACKUP_SEMANTICS)
    }

    fn open(path: &Path, flags: u32) -> io::Result<Stat> {
        let mut options = File::options();
        options
            .access_mode(FILE_READ_ATTRIBUTES)
            .custom_flags(flags);
        Stat::of(&options.open(path)?)
    }

    /// Of an open file.
    #[expect(
        unsafe_code,
        reason = "the standard library doesn't tell a file's change time"
    )]
    pub(crate) fn of(file: &File) -> io::Result<Stat> {
        let handle = file.as_raw_handle();
        let mut basic = FILE_BASIC_INFO::default();
        let mut info = BY_HANDLE_FILE_INFORMATION::default();
        // SAFETY: the handle is open while the file is borrowed, and each buffer is of the type that is asked for.
        let kind = unsafe {
            told(GetFileInformationByHandle(handle, &raw mut info))?;
            let size = size_of_val(&basic) as u32;
            let into = (&raw mut basic).cast();
            told(GetFileInformationByHandleEx(
                handle,
                FileBasicInfo,
                into,
                size,
            ))?;
            GetFileType(handle)
        };
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        Ok(Stat {
            attributes: info.dwFileAttributes,
            is_on_disk: kind == FILE_TYPE_DISK,
            size: pair(info.nFileSizeHigh, info.nFileSizeLow),
            links: info.nNumberOfLinks.into(),
            identity: (
                info.dwVolumeSerialNumber.into(),
                pair(info.nFileIndexHigh, info.nFileIndexLow),
            ),
            modified: since_1970(ticks(info.ftLastWriteTime)),
            changed: since_1970(basic.ChangeTime),
        })
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.attributes & FILE_ATTRIBUTE_DIRECTORY != 0 && !self.is_symlink()
    }

    pub(crate) fn is_file(&self) -> bool {
        self.is_on_disk
            && self.attributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT) == 0
    }

    /// Whether it is a link, a junction or the like.
    pub(crate) fn is_symlink(&self) -> bool {
        self.attributes & FILE_ATTRIBUTE_REPARSE_POINT != 0
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Which file it is, whatever it is called.
    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    pub(crate) fn signature(&self) -> Signature {
        let is_directory = self.is_dir();
        let unless_directory = |time| if is_directory { (0, 0) } else { time };
        Signature {
            modified: unless_directory(self.modified),
            changed: unless_directory(self.changed),
            size: if is_directory { 0 } else { self.size },
            inode: self.identity.1,
            device: self.identity.0,
            mode: self.attributes,
        }
    }
}

fn ticks(time: FILETIME) -> i64 {
    i64::from(time.dwHighDateTime) << 32 | i64::from(time.dwLowDateTime)
}

/// Ticks of 100 ns since 1601 as seconds and nanoseconds since 1970.
/// <https://learn.microsoft.com/windows/win32/api/minwinbase/ns-minwinbase-filetime>
fn since_1970(ticks: i64) -> (i64, i64) {
    const TICKS: i64 = 10_000_000;
    const YEARS: i64 = 11_644_473_600;
    (
        ticks.div_euclid(TICKS) - YEARS,
        ticks.rem_euclid(TICKS) * 100,
    )
}

/// Nothing is watched here, so nothing has to be trusted.
pub(crate) fn distrusted(_path: &Path) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use std::os::windows::fs::MetadataExt as _;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_file_that_somebody_has_open_for_a_moment_is_replaced_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        dir.write_new("main", b"old").unwrap();
        dir.write_new("new", b"new").unwrap();
        let scanner = File::options()
            .read(true)
            .share_mode(0)
            .open(folder.path().join("main"))
            .unwrap();
        let (sender, release) = channel();
        let scan = std::thread::spawn(move || {
            release.recv().unwrap();
            drop(scanner);
        });
        assert!(replace(&folder.path().join("new"), &folder.path().join("main")).is_err());
        sender.send(()).unwrap();
        dir.rename("new", "main").unwrap();
        assert_eq!(dir.read("main", "", 10).unwrap().bytes, b"new");
        scan.join().unwrap();
    }

    #[test]
    fn who_holds_a_lock_can_be_read_while_it_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        let held = dir.lock("lock", Instant::now()).unwrap().unwrap();
        let text = std::fs::read_to_string(folder.path().join("lock")).unwrap();
        assert_eq!(text.trim(), std::process::id().to_string());
        assert!(dir.lock("lock", Instant::now()).unwrap().is_err());
        drop(held);
        assert!(dir.lock("lock", Instant::now()).unwrap().is_ok());
    }

    #[test]
    fn what_is_no_file_is_told_apart_and_nothing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Dir::open(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("directory")).unwrap();
        assert!(matches!(dir.read("none", "", 10), Err(ReadError::Missing)));
        assert!(matches!(
            dir.read("directory", "", 10),
            Err(ReadError::NotRegular("a directory"))
        ));
        dir.write_new("file", b"1234567890").unwrap();
        assert!(matches!(
            dir.read("file", "", 9),
            Err(ReadError::TooLarge(9))
        ));
        assert_eq!(
            dir.rename("file", "directory").unwrap_err().kind(),
            io::ErrorKind::IsADirectory
        );
        std::fs::hard_link(folder.path().join("file"), folder.path().join("other")).unwrap();
        assert!(matches!(
            dir.read("file", "", 10),
            Err(ReadError::Linked(2))
        ));
        assert!(dir.read("file", "other", 10).is_ok());
    }

    #[test]
    fn a_signature_has_the_times_that_the_system_tells() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let signature = Stat::at(&path).unwrap().signature();
        let told = path.metadata().unwrap();
        assert_eq!(
            signature.modified,
            since_1970(told.last_write_time() as i64)
        );
        let since = told
            .modified()
            .unwrap()
            .duration_since(std::time::UNIX_EPOCH);
        assert_eq!(signature.modified(), since.unwrap().as_nanos() as i128);
        std::fs::write(&path, "three").unwrap();
        assert_ne!(Stat::at(&path).unwrap().signature(), signature);
    }
}
