//! How many connections this process has file descriptors for.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Most connections of a worker thread: about half a gigabyte for those that send a head slowly.
const PER_WORKER_MAX: u64 = 10_000;

/// Below this many connections, a few idle clients keep the others out.
const FEW: u64 = 1_000;

/// Files that a program has anyway: standard streams, logs, listeners, connections for metrics and
/// probes.
const OTHER_FILES: u64 = 64;

/// Files of a worker thread's event loop.
const FILES_PER_WORKER: u64 = 8;

/// Work beside requests counts with at most one of so many files. Only a low limit, such as 1,024,
/// makes that felt: then clients compete with a backlog of that work for files.
const BACKGROUND_SHARE: u64 = 4;

/// What the process does with files, beside accepting connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files {
    /// Worker threads.
    pub workers: usize,
    /// Files that all requests share: the connections of a pool to the database.
    pub shared: u32,
    /// Most files of work beside requests.
    pub background: usize,
    /// Most files that one request opens for itself, such as a connection to another service.
    pub per_request: u32,
}

/// Raises the limit on open files as far as the process may, and derives the most connections of
/// each worker thread from it.
pub fn connections_per_worker(files: &Files) -> usize {
    let limit = raised_file_limit();
    let connections = connections(limit, files);
    tracing::debug!(open_files = limit, connections, "connections are limited");
    if connections < FEW {
        tracing::warn!(
            open_files = limit,
            connections,
            "few connections fit into the limit on open files: raise the hard limit to 65536, with \
             `ulimit -Hn`, LimitNOFILE of systemd, or --ulimit nofile of Docker"
        );
    }
    let per_worker = connections / workers(files);
    usize::try_from(per_worker).unwrap_or(usize::MAX).max(1)
}

/// The soft limit, after it was raised to the hard one. The soft one is low for programs that use
/// `select`.
fn raised_file_limit() -> u64 {
    // Without any limit, the most per worker counts.
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return u64::MAX;
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        // macOS refuses more than the kernel has.
        Err(_) => soft,
    }
}

fn workers(files: &Files) -> u64 {
    (files.workers as u64).max(1)
}

/// Connections of all workers together.
fn connections(file_limit: u64, files: &Files) -> u64 {
    let own = OTHER_FILES
        + FILES_PER_WORKER * workers(files)
        + u64::from(files.shared)
        + (files.background as u64).min(file_limit / BACKGROUND_SHARE);
    let left = file_limit.saturating_sub(own);
    let files_each = 1 + u64::from(files.per_request);
    (left / files_each).min(PER_WORKER_MAX * workers(files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_all_other_files_fit_into_the_limit() {
        let files = |workers, shared, per_request| Files {
            workers,
            shared,
            background: 256,
            per_request,
        };
        for (limit, files, expected) in [
            (1024, files(2, 10, 0), 678),
            (1024, files(2, 10, 1), 339),
            (4096, files(4, 100, 0), 3644),
            (1_048_576, files(2, 10, 0), 20_000),
            (u64::MAX, files(1, 10, 1), 10_000),
            (64, files(2, 10, 0), 0),
        ] {
            assert_eq!(connections(limit, &files), expected, "{limit}, {files:?}");
        }
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let limit = raised_file_limit();
        let after = getrlimit(Resource::RLIMIT_NOFILE);
        if cfg!(target_os = "linux") {
            assert_eq!(after, Ok((limit, limit)));
        }
    }
}
