//! The daemon's process on Windows: how it lets go of whoever started it, and what it tells of itself.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::windows::io::{AsHandle as _, IntoRawHandle as _};
use std::path::Path;

use percent_encoding::percent_decode_str;
use protocol::os::Waitable;
use windows_sys::Win32::Foundation::CloseHandle;
use windows_sys::Win32::System::Console::{
    FreeConsole, GetStdHandle, STD_OUTPUT_HANDLE, SetStdHandle,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use crate::dir::Stat;

/// There are no signals to be blocked or ignored.
pub(crate) fn reset_signals() {}

/// No signal tells of a file that may not grow.
pub(crate) fn survive_file_limit() {}

/// What this process makes is as private as the directory that it is in.
pub(crate) fn make_private() {}

/// The number of open files has no limit worth raising.
pub(crate) fn raise_file_limit() {}

/// Lets go of the console, if there is one.
#[expect(unsafe_code, reason = "no safe interface leaves a console")]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
pub(crate) fn detach() -> io::Result<()> {
    // SAFETY: takes nothing; that there was no console is no matter.
    unsafe { FreeConsole() };
    Ok(())
}

/// Lets go of standard output, on which readiness was told.
#[expect(unsafe_code, reason = "no safe interface replaces standard output")]
pub(crate) fn release_stdout() -> io::Result<()> {
    let null = File::options().write(true).open("NUL")?;
    // SAFETY: from now on the process's standard output is the new handle, which nobody closes; nobody uses the old
    // one any more.
    unsafe {
        let old = GetStdHandle(STD_OUTPUT_HANDLE);
        if SetStdHandle(STD_OUTPUT_HANDLE, null.into_raw_handle()) == 0 || CloseHandle(old) == 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Resident memory of this process in bytes.
#[expect(unsafe_code, reason = "no safe interface tells a process's memory")]
pub(crate) fn memory() -> Option<u64> {
    let mut counters = PROCESS_MEMORY_COUNTERS::default();
    let size = size_of_val(&counters) as u32;
    // SAFETY: the buffer has the size that is told, and the pseudo handle is always valid.
    let told = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &raw mut counters, size) };
    (told != 0).then_some(counters.WorkingSetSize as u64)
}

/// No service manager waits to be told.
pub(crate) fn say_ready() {}

/// No service manager waits to be told.
pub(crate) fn say_stopping() {}

/// Whether a process of this id is there.
pub(crate) fn is_alive(pid: u32) -> bool {
    Waitable::find(pid).is_some_and(|process| process.is_alive())
}

/// A pipe has its name for itself, and looking at it would take one of its instances.
pub(crate) fn is_in_the_way(_path: &Path) -> bool {
    false
}

/// How much a file holds, if that is where standard error goes.
pub(crate) fn size_behind_stderr(path: &Path) -> io::Result<Option<u64>> {
    let stderr = File::from(io::stderr().as_handle().try_clone_to_owned()?);
    let (stderr, file) = (Stat::of(&stderr)?, Stat::at(path)?);
    let is_it = stderr.is_file() && stderr.identity() == file.identity();
    Ok(is_it.then_some(stderr.size()))
}

/// A path as it is percent-encoded in a `file:` URI, decoded: `/c:/x` is `c:/x`.
pub(crate) fn path_of_uri(path: &str) -> OsString {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let drive = path
        .strip_prefix('/')
        .filter(|rest| rest.get(1..2) == Some(":"));
    OsString::from(drive.unwrap_or(&path))
}

/// Whether desktop clients start servers there: a drive's or a share's root, or Windows itself.
pub(crate) fn is_system_directory(path: &Path) -> bool {
    let windows =
        std::env::var_os("SystemRoot").and_then(|root| protocol::os::canonical(root.as_ref()).ok());
    path.parent().is_none() || windows.is_some_and(|windows| path.starts_with(windows))
}

/// Whether directories can be watched so that what happens in them is told in order: each has a queue of its own here,
/// and one that is watched can't be renamed.
pub(crate) const WATCHES: bool = false;

/// Whether a watch is for everything under a directory.
pub(crate) const WATCHES_TREES: bool = false;

/// Whether a file may be found under a name that isn't spelt like its own.
pub(crate) const FOLDS_NAMES: bool = true;

#[cfg(test)]
mod tests {
    use protocol::env::{CHECKPOINT_PROJECT_ROOT, Env};

    use super::*;
    use crate::roots;

    #[test]
    fn a_drives_path_in_a_uri_has_no_slash_before_it() {
        assert_eq!(path_of_uri("/C:/My%20Project"), "C:/My Project");
        assert_eq!(path_of_uri("/d:/x"), "d:/x");
    }

    #[test]
    fn clients_start_servers_in_windows_and_at_the_root_of_a_drive() {
        for system in [r"C:\", r"C:\windows", r"C:\windows\system32"] {
            assert!(is_system_directory(Path::new(system)), "{system}");
        }
        assert!(!is_system_directory(Path::new(r"C:\users")));
        assert!(!is_system_directory(Path::new(r"C:\windows-project")));
    }

    #[test]
    fn one_project_and_one_file_have_one_name_however_they_are_spelt() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("My Project");
        std::fs::create_dir_all(project.join("src")).unwrap();
        std::fs::write(project.join("src/Main.rs"), "").unwrap();
        let plain = protocol::os::canonical(&project).unwrap();
        assert!(!plain.to_str().unwrap().starts_with(r"\\?\"));
        let verbatim = project.canonicalize().unwrap();
        let slashes = plain.to_str().unwrap().replace('\\', "/");
        let shouted = plain.to_str().unwrap().to_uppercase();
        for root in [verbatim.to_str().unwrap(), &slashes, &shouted] {
            let found = roots::named(Some(root), &Env::default()).unwrap().unwrap();
            assert_eq!(found.path, plain, "{root}");
            let env = Env::from_iter([(CHECKPOINT_PROJECT_ROOT, root)]);
            assert_eq!(roots::named(None, &env).unwrap(), Some(found));
            for file in [
                r"src\Main.rs",
                "src/Main.rs",
                "SRC/main.RS",
                r".\src\x\..\main.rs",
            ] {
                assert_eq!(
                    roots::relative(&plain, file),
                    Ok("src/Main.rs".into()),
                    "{file}"
                );
                let absolute = Path::new(root).join(file);
                let absolute = absolute.to_str().unwrap();
                assert_eq!(
                    roots::relative(&plain, absolute),
                    Ok("src/Main.rs".into()),
                    "{absolute}"
                );
            }
            assert_eq!(
                roots::relative(&plain, "src/new.rs"),
                Ok("src/new.rs".into())
            );
        }
        for outside in [
            r"C:\windows\win.ini",
            r"C:x",
            r"\x",
            r"..\x",
            r"\\server\share\x",
        ] {
            assert!(roots::relative(&plain, outside).is_err(), "{outside}");
        }
    }
}
