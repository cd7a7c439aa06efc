//! Directory handles on Unix: the `*at` calls, by rustix.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::{files, os};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{FileRead, ReadError, Signature, fault};

const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const PRIVATE_DIRECTORY: Mode = Mode::RWXU;
const OPEN: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);

/// How often a file's names are looked at before it counts as linked to something else.
const LINK_LOOKS: usize = 3;
/// How often a waiting writer asks for the lock again: `flock` has no timeout.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

/// A lock that ends when it is dropped, or with its process.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held, not used")] OwnedFd);

impl Dir {
    /// Opens a real directory; a link in its place is refused.
    pub(crate) fn open(path: &Path) -> io::Result<Dir> {
        let flags = OPEN | OFlags::DIRECTORY | OFlags::RDONLY;
        Ok(Dir(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Opens a real directory in this one.
    pub(crate) fn open_dir(&self, name: &str) -> io::Result<Dir> {
        let flags = OPEN | OFlags::DIRECTORY | OFlags::RDONLY;
        Ok(Dir(rustix::fs::openat(
            &self.0,
            name,
            flags,
            Mode::empty(),
        )?))
    }

    /// Makes a directory for this user alone, unless it exists.
    pub(crate) fn make_dir(&self, name: &str) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.0, name, PRIVATE_DIRECTORY) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes access from everybody else, where they have any.
    pub(crate) fn make_private(&self) -> io::Result<()> {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&self.0)?.st_mode);
        if mode.intersects(Mode::RWXG | Mode::RWXO) || !mode.contains(PRIVATE_DIRECTORY) {
            rustix::fs::fchmod(&self.0, PRIVATE_DIRECTORY)?;
        }
        Ok(())
    }

    /// The names in it, in no order; what is no Unicode can't be ours and is left out.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// What stands at a name, without following a link: its device and inode, or `None` where nothing does.
    pub(crate) fn inode(&self, name: &str) -> io::Result<Option<(u64, u64)>> {
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            #[expect(clippy::unnecessary_cast, reason = "their types differ by platform")]
            Ok(stat) => Ok(Some((stat.st_dev as u64, stat.st_ino as u64))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a regular file that has one name, or a second one which is `twin` or a temporary name of a writer: at
    /// most `most` bytes.
    pub(crate) fn read(&self, name: &str, twin: &str, most: u64) -> Result<FileRead, ReadError> {
        // Looked at before it is opened: opening a device can do things.
        let stat = match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Err(ReadError::Missing),
            Err(error) => return Err(ReadError::Io(error.into())),
        };
        check_type(FileType::from_raw_mode(stat.st_mode))?;
        let flags = OPEN | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::RDONLY;
        let file = match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Err(ReadError::Missing),
            Err(Errno::LOOP) => return Err(ReadError::NotRegular("a symbolic link")),
            Err(error) => return Err(ReadError::Io(error.into())),
        };
        let metadata = file.metadata().map_err(ReadError::Io)?;
        check_type(FileType::from_raw_mode(
            metadata.mode() as rustix::fs::RawMode
        ))?;
        self.check_links(&file, twin)?;
        let mut bytes = Vec::new();
        file.take(most + 1)
            .read_to_end(&mut bytes)
            .map_err(ReadError::Io)?;
        if bytes.len() as u64 > most {
            return Err(ReadError::TooLarge(most));
        }
        let owner = metadata.uid();
        Ok(FileRead {
            bytes,
            foreign_owner: (owner != os::user()).then_some(owner),
        })
    }

    /// Refuses a file that something else has by a hard link. While a writer makes it the backup it has two names,
    /// and which they are changes under our eyes: so a look that finds too many is repeated.
    fn check_links(&self, file: &File, twin: &str) -> Result<(), ReadError> {
        let mut links = 0;
        for _ in 0..LINK_LOOKS {
            let metadata = file.metadata().map_err(ReadError::Io)?;
            links = metadata.nlink();
            let own = Some((metadata.dev(), metadata.ino()));
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
        let flags = OPEN | OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = rustix::fs::openat(&self.0, name, flags, PRIVATE_FILE)?;
        // A umask can only take bits away; 0600 it shall be.
        rustix::fs::fchmod(&file, PRIVATE_FILE)?;
        Ok(File::from(file))
    }

    /// Takes access to a file from everybody else, where it is an ordinary one of this user's.
    pub(crate) fn make_file_private(&self, name: &str) -> io::Result<()> {
        let flags = OPEN | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::RDONLY;
        let file = rustix::fs::openat(&self.0, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        let ordinary = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_nlink == 1
            && stat.st_uid == os::user();
        if ordinary && Mode::from_raw_mode(stat.st_mode) != PRIVATE_FILE {
            rustix::fs::fchmod(&file, PRIVATE_FILE)?;
        }
        Ok(())
    }

    /// Gives a file another name, replacing what has that.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fault::point("rename")?;
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Gives a file a second name.
    pub(crate) fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fault::point("link")?;
        Ok(rustix::fs::linkat(
            &self.0,
            from,
            &self.0,
            to,
            AtFlags::empty(),
        )?)
    }

    /// Removes a name, if it is there.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fault::point("remove")?;
        match rustix::fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes what happened to names in it durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        fault::point("sync directory")?;
        match rustix::fs::fsync(&self.0) {
            // Some network and FUSE file systems can't sync a directory; there is no other way to ask.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the lock that `name` stands for, until `deadline`; the inner error, if somebody holds it all that time, is
    /// their process id, where it is known.
    pub(crate) fn lock(
        &self,
        name: &str,
        deadline: Instant,
    ) -> io::Result<Result<Lock, Option<u32>>> {
        let flags = OPEN | OFlags::CREATE | OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::openat(&self.0, name, flags, PRIVATE_FILE)?;
        loop {
            match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let holder = format!("{:<10}\n", std::process::id());
                    // It only helps those who wait in vain to say for whom.
                    let _written = rustix::io::pwrite(&file, holder.as_bytes(), 0);
                    return Ok(Ok(Lock(file)));
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= deadline {
                let mut holder = [0; 10];
                let read = rustix::io::pread(&file, &mut holder, 0).unwrap_or(0);
                let holder = str::from_utf8(&holder[..read]).ok();
                // It wrote last; one that is gone, or waits itself, doesn't hold it.
                let holder = holder
                    .and_then(|pid| pid.trim().parse().ok())
                    .filter(|pid| *pid != std::process::id() && crate::os::is_alive(*pid));
                return Ok(Err(holder));
            }
            std::thread::sleep(LOCK_POLL);
        }
    }
}

fn check_type(kind: FileType) -> Result<(), ReadError> {
    Err(ReadError::NotRegular(match kind {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of unknown type",
    }))
}

/// What stands at a path, or is open.
#[derive(Debug)]
pub(crate) struct Stat(Metadata);

impl Stat {
    /// Of a path, without following a link.
    pub(crate) fn at(path: &Path) -> io::Result<Stat> {
        path.symlink_metadata().map(Stat)
    }

    /// Of what a path leads to.
    pub(crate) fn behind(path: &Path) -> io::Result<Stat> {
        path.metadata().map(Stat)
    }

    /// Of an open file.
    pub(crate) fn of(file: &File) -> io::Result<Stat> {
        file.metadata().map(Stat)
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.0.is_dir()
    }

    pub(crate) fn is_file(&self) -> bool {
        self.0.is_file()
    }

    pub(crate) fn is_symlink(&self) -> bool {
        self.0.is_symlink()
    }

    /// Its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.0.size()
    }

    /// Which file it is, whatever it is called.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.0.dev(), self.0.ino())
    }

    pub(crate) fn signature(&self) -> Signature {
        let metadata = &self.0;
        let is_directory = metadata.is_dir();
        let unless_directory = |time: (i64, i64)| if is_directory { (0, 0) } else { time };
        Signature {
            modified: unless_directory((metadata.mtime(), metadata.mtime_nsec())),
            changed: unless_directory((metadata.ctime(), metadata.ctime_nsec())),
            size: if is_directory { 0 } else { metadata.size() },
            inode: metadata.ino(),
            device: metadata.dev(),
            mode: metadata.mode(),
        }
    }
}

/// Why events of a directory's file system can't be trusted to tell of every change: `statfs(2)`.
pub(crate) fn distrusted(path: &Path) -> Option<String> {
    let kind = rustix::fs::statfs(path).ok()?.f_type as u64 & 0xffff_ffff;
    let name = match kind {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE",
        0x794c_7630 => "overlay",
        0x00c3_6400 => "Ceph",
        0x5346_414f => "AFS",
        0x786f_4256 => "VirtualBox",
        0xbacb_acbc => "VMware",
        _ => return None,
    };
    Some(format!(
        "its file system ({name}) doesn't tell of every change"
    ))
}
