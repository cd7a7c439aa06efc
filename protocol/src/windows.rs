//! What both sides ask of Windows.
//!
//! A user is a SID, and what is private is so by a list that names this user, the system and its administrators.
#![expect(
    clippy::disallowed_methods,
    reason = "a pipe that is busy is waited for by the clock"
)]

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::windows::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::os::windows::io::{AsHandle, AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::path::{Component, Path, PathBuf, Prefix};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{
    ERROR_ALREADY_EXISTS, ERROR_PIPE_BUSY, ERROR_SUCCESS, FILETIME, HANDLE, INVALID_HANDLE_VALUE,
    LocalFree, WAIT_TIMEOUT,
};
use windows_sys::Win32::Security::Authorization::{
    ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW, GetSecurityInfo,
    SDDL_REVISION_1, SE_FILE_OBJECT, SE_KERNEL_OBJECT, SE_OBJECT_TYPE, SetSecurityInfo,
};
use windows_sys::Win32::Security::{
    ACL, DACL_SECURITY_INFORMATION, GetSecurityDescriptorDacl, GetTokenInformation,
    OWNER_SECURITY_INFORMATION, PROTECTED_DACL_SECURITY_INFORMATION, PSECURITY_DESCRIPTOR, PSID,
    SECURITY_ATTRIBUTES, TOKEN_QUERY, TOKEN_USER, TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    CreateDirectoryW, FILE_ATTRIBUTE_REPARSE_POINT, FILE_FLAG_BACKUP_SEMANTICS,
    FILE_FLAG_OPEN_REPARSE_POINT, READ_CONTROL, SECURITY_IDENTIFICATION,
};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetProcessTimes, INFINITE, OpenProcess, OpenProcessToken,
    PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE, WaitForSingleObject,
};

use crate::env::{self, Env};
use crate::socket::{MAX_SOCKET_PATH, Place, SocketError};
use crate::state;
use crate::word::Process;

/// A user: the text of its SID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(String);

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// SYSTEM, the administrators and the installer of Windows: what they own is no other user's.
/// <https://learn.microsoft.com/windows-server/identity/ad-ds/manage/understand-security-identifiers>
const SYSTEM: [&str; 3] = [
    "S-1-5-18",
    "S-1-5-32-544",
    "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464",
];

impl User {
    /// Whether it is the system itself, or those who may do everything anyway.
    pub fn is_system(&self) -> bool {
        SYSTEM.contains(&self.0.as_str())
    }
}

/// The user of this process; one without a name where the system doesn't tell, and such a one owns nothing.
pub fn user() -> User {
    static USER: OnceLock<User> = OnceLock::new();
    USER.get_or_init(|| token_user().unwrap_or(User(String::new())))
        .clone()
}

#[expect(unsafe_code, reason = "no safe interface tells a process's user")]
fn token_user() -> Option<User> {
    let mut token: HANDLE = null_mut();
    // SAFETY: the pseudo handle of this process is always valid, and the token is owned by nobody else.
    let token = unsafe {
        (OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) != 0)
            .then(|| OwnedHandle::from_raw_handle(token))?
    };
    // A SID is at most 68 bytes; words, so that the pointers in it are aligned.
    let mut buffer = [0_u64; 32];
    let mut length = 0;
    // SAFETY: the buffer has the size that is told, and where the call succeeds it begins with a `TOKEN_USER` whose SID
    // lies in the same buffer.
    unsafe {
        let told = GetTokenInformation(
            token.as_raw_handle(),
            TokenUser,
            buffer.as_mut_ptr().cast(),
            size_of_val(&buffer) as u32,
            &raw mut length,
        );
        let user = buffer.as_ptr().cast::<TOKEN_USER>();
        (told != 0).then(|| text_of((*user).User.Sid))?
    }
}

/// # Safety
/// `sid` must be a valid SID.
#[expect(unsafe_code, reason = "SIDs are pointers")]
unsafe fn text_of(sid: PSID) -> Option<User> {
    let mut text = null_mut();
    // SAFETY: the caller's promise; the text ends with a zero, and is this caller's to free.
    unsafe {
        if ConvertSidToStringSidW(sid, &raw mut text) == 0 {
            return None;
        }
        let length = (0..).take_while(|n| *text.add(*n) != 0).count();
        let sid = String::from_utf16_lossy(std::slice::from_raw_parts(text, length));
        LocalFree(text.cast());
        Some(User(sid))
    }
}

/// Whose a file is.
pub fn owner(path: &Path) -> Option<User> {
    let file = File::options()
        .access_mode(READ_CONTROL)
        .custom_flags(FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT)
        .open(path)
        .ok()?;
    owner_of(&file)
}

/// Whose an open file is.
pub fn owner_of(file: &impl AsHandle) -> Option<User> {
    owner_of_object(file, SE_FILE_OBJECT)
}

/// Whose the other end of an open pipe is.
pub fn owner_of_pipe(pipe: &impl AsHandle) -> Option<User> {
    owner_of_object(pipe, SE_KERNEL_OBJECT)
}

#[expect(unsafe_code, reason = "no safe interface tells an owner")]
fn owner_of_object(object: &impl AsHandle, kind: SE_OBJECT_TYPE) -> Option<User> {
    let mut sid: PSID = null_mut();
    let mut descriptor: PSECURITY_DESCRIPTOR = null_mut();
    // SAFETY: the handle is open while it is borrowed; the SID lies in the descriptor, which is this caller's to free.
    unsafe {
        let told = GetSecurityInfo(
            object.as_handle().as_raw_handle(),
            kind,
            OWNER_SECURITY_INFORMATION,
            &raw mut sid,
            null_mut(),
            null_mut(),
            null_mut(),
            &raw mut descriptor,
        );
        if told != ERROR_SUCCESS {
            return None;
        }
        let owner = text_of(sid);
        LocalFree(descriptor);
        owner
    }
}

/// Whether a directory is no other user's home.
pub(crate) fn may_keep(path: &Path, user: &User) -> bool {
    owner(path).is_some_and(|owner| owner == *user || owner.is_system())
}

/// Who may use an object: a security descriptor, with the attributes that name it.
pub struct Access {
    descriptor: PSECURITY_DESCRIPTOR,
    attributes: SECURITY_ATTRIBUTES,
}

impl Access {
    /// This user, the system and its administrators, for a directory and all that will be in it.
    pub fn to_directory() -> io::Result<Access> {
        let full = |who: &str| format!("(A;OICI;FA;;;{who})");
        Access::new(&format!(
            "D:P{}{}{}",
            full(&user().0),
            full("SY"),
            full("BA")
        ))
    }

    /// This user alone, who is the owner as well: how a pipe's client knows its server.
    pub fn to_pipe() -> io::Result<Access> {
        let user = user();
        Access::new(&format!("O:{user}D:P(A;;GA;;;{user})"))
    }

    /// <https://learn.microsoft.com/windows/win32/secauthz/security-descriptor-string-format>
    #[expect(unsafe_code, reason = "descriptors are pointers")]
    fn new(sddl: &str) -> io::Result<Access> {
        let mut descriptor = null_mut();
        // SAFETY: the text ends with a zero, and the descriptor is this value's to free.
        let made = unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                wide(OsStr::new(sddl)).as_ptr(),
                SDDL_REVISION_1,
                &raw mut descriptor,
                null_mut(),
            )
        };
        if made == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Access {
            descriptor,
            attributes: SECURITY_ATTRIBUTES {
                nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
                lpSecurityDescriptor: descriptor,
                bInheritHandle: 0,
            },
        })
    }

    /// The attributes, for as long as this value lives.
    pub fn attributes(&self) -> *const SECURITY_ATTRIBUTES {
        &raw const self.attributes
    }

    /// Gives an open file this access and no inherited one; its handle must allow that (`WRITE_DAC`).
    #[expect(unsafe_code, reason = "no safe interface sets an access list")]
    pub fn give(&self, file: &impl AsHandle) -> io::Result<()> {
        let mut list: *mut ACL = null_mut();
        let (mut present, mut defaulted) = (0, 0);
        // SAFETY: the list lies in this value's descriptor, and the handle is open while it is borrowed.
        let set = unsafe {
            if GetSecurityDescriptorDacl(
                self.descriptor,
                &raw mut present,
                &raw mut list,
                &raw mut defaulted,
            ) == 0
            {
                return Err(io::Error::last_os_error());
            }
            SetSecurityInfo(
                file.as_handle().as_raw_handle(),
                SE_FILE_OBJECT,
                DACL_SECURITY_INFORMATION | PROTECTED_DACL_SECURITY_INFORMATION,
                null_mut(),
                null_mut(),
                list,
                null_mut(),
            )
        };
        match set {
            ERROR_SUCCESS => Ok(()),
            error => Err(io::Error::from_raw_os_error(error.cast_signed())),
        }
    }
}

impl Drop for Access {
    #[expect(unsafe_code, reason = "the system allocated it")]
    fn drop(&mut self) {
        // SAFETY: nobody else frees it, and the attributes that name it go with this value.
        unsafe { LocalFree(self.descriptor) };
    }
}

/// Text as the system takes it: UTF-16, with a zero behind it.
pub fn wide(text: &OsStr) -> Vec<u16> {
    text.encode_wide().chain([0]).collect()
}

/// Makes a directory for this user alone, unless it exists.
#[expect(
    unsafe_code,
    reason = "no safe interface makes a directory with an access list"
)]
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let access = Access::to_directory()?;
    // SAFETY: the path ends with a zero, and the attributes live until the call returns.
    let made = unsafe { CreateDirectoryW(wide(path.as_os_str()).as_ptr(), access.attributes()) };
    match io::Error::last_os_error() {
        error if made == 0 && error.raw_os_error() != Some(ERROR_ALREADY_EXISTS.cast_signed()) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Whether `path` is a real directory of `user`. Whom else its list lets in is the user's own decision.
pub fn check_private(path: &Path, user: &User) -> Result<(), SocketError> {
    let unreadable = |reason: String| SocketError::Unreadable {
        path: path.to_path_buf(),
        reason,
    };
    let metadata = path
        .symlink_metadata()
        .map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_dir() || metadata.file_attributes() & FILE_ATTRIBUTE_REPARSE_POINT != 0 {
        return Err(SocketError::NotADirectory(path.to_path_buf()));
    }
    let owner = owner(path).ok_or_else(|| unreadable("its owner can't be told".to_owned()))?;
    if owner == *user || owner.is_system() {
        return Ok(());
    }
    Err(SocketError::ForeignOwner {
        path: path.to_path_buf(),
        owner,
        user: user.clone(),
    })
}

/// Options that open a file and follow no link. Who may read it is its directory's affair.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
}

/// Opens a file for reading without following a link. What it is must be checked on the open file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    private(File::options().read(true)).open(path)
}

/// A path without links, and without the `\\?\` that few programs understand where it isn't needed.
pub fn canonical(path: &Path) -> io::Result<PathBuf> {
    let path = dunce::canonicalize(path)?;
    let mut parts = path.components();
    let Some(Component::Prefix(prefix)) = parts.next() else {
        return Ok(path);
    };
    let Prefix::VerbatimUNC(server, share) = prefix.kind() else {
        return Ok(path);
    };
    let mut plain = OsString::from(r"\\");
    plain.push(server);
    plain.push(r"\");
    plain.push(share);
    plain.push(parts.as_path());
    Ok(plain.into())
}

/// A variable's name as variables are told apart: without case.
pub(crate) fn variable(name: OsString) -> OsString {
    name.to_ascii_uppercase()
}

/// Text as UTF-16 code units.
pub(crate) fn units(text: &OsStr) -> Vec<u16> {
    text.encode_wide().collect()
}

/// UTF-16 code units as text.
pub(crate) fn from_units(units: &[u16]) -> OsString {
    OsString::from_wide(units)
}

const PIPES: &str = r"\\.\pipe\";

/// What an explicit socket must be.
pub(crate) const SOCKET_RULE: &str = r"a pipe's name, such as `\\.\pipe\session-checkpoint-test`";

/// The pipe, and the directory of what elsewhere lies beside the socket.
pub(crate) fn place(env: &Env, user: &User) -> Result<Place, SocketError> {
    let named = env.get(env::SOCKET).map(PathBuf::from);
    let explicit = named.is_some();
    let socket =
        named.unwrap_or_else(|| PathBuf::from(format!("{PIPES}session-checkpoint-{user}")));
    let name = socket.to_str().and_then(|socket| {
        let (start, name) = socket.split_at_checked(PIPES.len())?;
        start.eq_ignore_ascii_case(PIPES).then_some(name)
    });
    if name.is_none_or(|name| name.is_empty() || name.contains(['\\', '/', ':'])) {
        return Err(SocketError::NoSocket(socket));
    }
    if socket.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(SocketError::TooLong(socket));
    }
    let state = state::directory(env).ok_or(SocketError::NoState)?;
    Ok(Place {
        directory: state.join("run"),
        socket,
        explicit,
    })
}

/// A socket for a program whose files are all in `folder`.
pub fn socket_in(folder: &Path) -> PathBuf {
    let mut pipe = OsString::from(PIPES);
    pipe.push(folder.file_name().unwrap_or_default());
    pipe.into()
}

/// How long a pipe may be busy between two clients.
const BUSY: Duration = Duration::from_secs(2);

/// Connects to a pipe of this user's and blocks on it. Its server learns who this is and can't act as it.
pub fn connect(socket: &Path) -> io::Result<File> {
    let deadline = Instant::now() + BUSY;
    let pipe = loop {
        let opened = File::options()
            .read(true)
            .write(true)
            .security_qos_flags(SECURITY_IDENTIFICATION)
            .open(socket);
        match opened {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => break opened?,
        }
    };
    match owner_of_pipe(&pipe) {
        Some(owner) if owner == user() => Ok(pipe),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Whether a pipe's server is only between two clients.
pub fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_PIPE_BUSY.cast_signed())
}

/// Returns when the console says to leave.
pub async fn told_to_leave() {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown};
    let (Ok(mut c), Ok(mut brk), Ok(mut close), Ok(mut logoff), Ok(mut shutdown)) = (
        ctrl_c(),
        ctrl_break(),
        ctrl_close(),
        ctrl_logoff(),
        ctrl_shutdown(),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = c.recv() => {}
        _ = brk.recv() => {}
        _ = close.recv() => {}
        _ = logoff.recv() => {}
        _ = shutdown.recv() => {}
    }
}

/// A process that can be waited for.
#[derive(Debug)]
pub struct Waitable(OwnedHandle);

impl Waitable {
    /// The process of this id, if it runs and is not somebody else's.
    pub fn find(pid: u32) -> Option<Waitable> {
        open_process(pid, PROCESS_SYNCHRONIZE).map(Waitable)
    }

    /// Until it has ended.
    pub fn wait(&self) {
        self.wait_for(INFINITE);
    }

    /// Whether it has not ended yet.
    pub fn is_alive(&self) -> bool {
        self.wait_for(0) == WAIT_TIMEOUT
    }

    #[expect(
        unsafe_code,
        reason = "no safe interface waits for a process of another parent"
    )]
    fn wait_for(&self, milliseconds: u32) -> u32 {
        // SAFETY: the handle is this value's own.
        unsafe { WaitForSingleObject(self.0.as_raw_handle(), milliseconds) }
    }
}

#[expect(unsafe_code, reason = "no safe interface opens a process")]
fn open_process(pid: u32, access: u32) -> Option<OwnedHandle> {
    // SAFETY: takes values alone; the handle is nobody else's.
    unsafe {
        let handle = OpenProcess(access, 0, pid);
        (!handle.is_null()).then(|| OwnedHandle::from_raw_handle(handle))
    }
}

/// The process that started this one, if it still runs.
pub(crate) struct Parent(Waitable);

impl Parent {
    pub(crate) fn find() -> Option<Parent> {
        Some(Parent(Waitable::find(parent()?)?))
    }

    /// Until it is gone.
    pub(crate) fn wait(self) {
        self.0.wait();
    }
}

/// The id of the process that started this one, unless it belongs to another one by now.
pub(crate) fn parent() -> Option<u32> {
    Processes::now().get(std::process::id())?.1
}

/// Processes are told apart by the time of day that they started at, across boots.
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may not be known")]
pub(crate) fn boot() -> Option<String> {
    Some("windows".to_owned())
}

/// The processes that run, by their ids: the parent's id and the program's name.
pub(crate) struct Processes(HashMap<u32, (u32, String)>);

impl Processes {
    #[expect(unsafe_code, reason = "no safe interface lists processes")]
    pub(crate) fn now() -> Processes {
        let mut processes = HashMap::new();
        // SAFETY: the snapshot is nobody else's; the entry says its own size, and is plain data.
        unsafe {
            let snapshot = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
            if snapshot == INVALID_HANDLE_VALUE {
                return Processes(processes);
            }
            let snapshot = OwnedHandle::from_raw_handle(snapshot);
            let mut entry = std::mem::zeroed::<PROCESSENTRY32W>();
            entry.dwSize = size_of::<PROCESSENTRY32W>() as u32;
            let mut more = Process32FirstW(snapshot.as_raw_handle(), &raw mut entry);
            while more != 0 {
                let name = entry.szExeFile.split(|unit| *unit == 0).next();
                let name = String::from_utf16_lossy(name.unwrap_or_default());
                processes.insert(entry.th32ProcessID, (entry.th32ParentProcessID, name));
                more = Process32NextW(snapshot.as_raw_handle(), &raw mut entry);
            }
        }
        Processes(processes)
    }

    /// A process and its parent's id. A parent that is gone leaves its id to others, which are younger.
    pub(crate) fn get(&self, pid: u32) -> Option<(Process, Option<u32>)> {
        let (parent, name) = self.0.get(&pid)?;
        let start = started(pid)?;
        let parent = Some(*parent).filter(|parent| {
            *parent != pid && started(*parent).is_some_and(|older| older <= start)
        });
        let name = name.clone();
        Some((Process { pid, start, name }, parent))
    }
}

/// When a process started, in units of 100 ns since 1601.
#[expect(unsafe_code, reason = "no safe interface tells when a process started")]
fn started(pid: u32) -> Option<u64> {
    let process = open_process(pid, PROCESS_QUERY_LIMITED_INFORMATION)?;
    let mut times = [FILETIME::default(); 4];
    let [start, exit, kernel, user] = &mut times;
    // SAFETY: the handle is open, and all four are written to.
    let told = unsafe { GetProcessTimes(process.as_raw_handle(), start, exit, kernel, user) };
    (told != 0).then(|| u64::from(start.dwHighDateTime) << 32 | u64::from(start.dwLowDateTime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_socket_wins_and_must_be_a_pipe() {
        let at = |pipe: &str| {
            let env = [(env::SOCKET, pipe), (env::STATE_DIR, r"C:\state")];
            place(&Env::from_iter(env), &user()).map(|place| (place.lock(), place.socket))
        };
        let (lock, socket) = at(r"\\.\PIPE\mine").unwrap();
        assert_eq!(socket, Path::new(r"\\.\PIPE\mine"));
        assert_eq!(lock, Path::new(r"C:\state\run\mine.lock"));
        for other in [r"C:\x\s", "s", r"\\.\pipe\", r"\\.\pipe\a\b", r"\\?\pipe\x"] {
            assert_eq!(at(other), Err(SocketError::NoSocket(other.into())));
        }
        let long = format!("{PIPES}{}", "x".repeat(MAX_SOCKET_PATH));
        assert_eq!(at(&long), Err(SocketError::TooLong(long.into())));
    }

    #[test]
    fn the_own_process_is_known_with_its_parent() {
        let (own, _) = Processes::now().get(std::process::id()).unwrap();
        assert_eq!(own.pid, std::process::id());
        assert!(own.start > 0);
        assert!(own.name.ends_with(".exe"));
    }

    #[test]
    fn a_new_directory_is_this_users() {
        let path = std::env::temp_dir().join(format!("session-checkpoint-{}", std::process::id()));
        make_private_dir(&path).unwrap();
        make_private_dir(&path).unwrap();
        assert_eq!(check_private(&path, &user()), Ok(()));
        std::fs::remove_dir(path).unwrap();
    }

    #[test]
    fn variables_have_no_case() {
        let env = Env::from_iter([("Path", "x")]);
        assert_eq!(env.get("PATH"), Some(OsStr::new("x")));
    }
}
