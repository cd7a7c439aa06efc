//! What the benches share: a repository of some size, times, and what `/proc` tells of a process.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::support::Repository;

/// Files of source-like size, a hundred to a directory; then the usual disorder.
pub(crate) fn fill(repo: &Repository, size: usize) {
    for n in 0..size {
        repo.write(&name(n), format!("line {n}\n").repeat(40 + n % 100));
    }
    repo.git(&["config", "gc.auto", "0"]);
    repo.git(&["add", "--all"]);
    repo.commit("files");
    repo.git(&["repack", "--quiet", "-a", "-d"]);
    for n in 0..100 {
        repo.write(&name(n * size / 100), format!("modified {n}\n").repeat(50));
    }
    for n in 0..20 {
        repo.write(
            &format!("{}.new", name(n * size / 20)),
            format!("new {n}\n").repeat(50),
        );
    }
    drop(repo.try_git(&["update-index", "--refresh"]));
}

pub(crate) fn name(n: usize) -> String {
    format!("src/p{:03}/m{:02}/file_{n:06}.rs", n / 2000, n / 100 % 20)
}

pub(crate) fn timed(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1000.0
}

pub(crate) fn write_raw(path: &Path, bytes: usize) {
    let temporary = path.with_extension("tmp");
    let mut file = fs::File::create(&temporary).unwrap();
    file.write_all(&vec![b'x'; bytes]).unwrap();
    file.sync_all().unwrap();
    fs::rename(&temporary, path).unwrap();
    fs::File::open(path.parent().unwrap())
        .unwrap()
        .sync_all()
        .unwrap();
}

pub(crate) fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

pub(crate) fn shown(mut times: Vec<f64>) -> String {
    let middle = median(&mut times);
    format!(
        "{middle:.2} [{:.2}–{:.2}]",
        times[times.len() / 4],
        times[times.len() * 3 / 4]
    )
}

pub(crate) fn pss(pid: u32) -> f64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup
        .lines()
        .find(|line| line.starts_with("Pss:"))
        .unwrap_or_default();
    line.split_ascii_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<f64>().ok())
        .unwrap_or_default()
        / 1024.0
}

/// User and system time in clock ticks of 10 ms.
pub(crate) fn cpu(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, tail)| tail)
        .split_ascii_whitespace()
        .collect();
    [11, 12]
        .iter()
        .filter_map(|at| fields.get(*at)?.parse::<u64>().ok())
        .sum()
}
