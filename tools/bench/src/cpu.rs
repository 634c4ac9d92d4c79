//! The CPU time of a process and everything that it started, from `/proc`.
//!
//! Promise: a child that has ended still counts, because the kernel adds its time to the parent
//! that waited for it.
//!
//! The time of those that live is exact. The ticks in `stat`, hundredths of a second, would be a
//! tenth of what twenty sessions use in a round.

use std::{collections::HashMap, fs};

use anyhow::Context;
use nix::unistd::{Pid, SysconfVar, sysconf};

const SECOND_US: u64 = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessTree {
    root: i32,
    ticks_per_second: u64,
}

/// What one line of `/proc/<pid>/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: i32,
    /// User and system time of all of its threads, ended ones included, in clock ticks.
    own_ticks: u64,
    /// The same of children that ended and were waited for.
    reaped_ticks: u64,
}

impl ProcessTree {
    pub(crate) fn of(root: Pid) -> anyhow::Result<Self> {
        let ticks = sysconf(SysconfVar::CLK_TCK)?.context("the kernel has no clock tick")?;
        Ok(Self {
            root: root.as_raw(),
            ticks_per_second: u64::try_from(ticks)?,
        })
    }

    /// CPU time since the start, in microseconds. A child that ends may take back two ticks.
    pub(crate) fn used_us(&self) -> anyhow::Result<u64> {
        let processes = all_processes();
        if !processes.contains_key(&self.root) {
            anyhow::bail!("process {} has ended", self.root);
        }
        let us = |ticks: u64| ticks * SECOND_US / self.ticks_per_second;
        let used = tree_below(self.root, &processes).map(|(pid, stat)| {
            // The exact time lacks threads that have ended, of which their ticks may say more.
            us(stat.own_ticks).max(threads_us(pid)) + us(stat.reaped_ticks)
        });
        Ok(used.sum())
    }
}

/// `root` and every process whose chain of parents leads to it.
fn tree_below(root: i32, processes: &HashMap<i32, Stat>) -> impl Iterator<Item = (i32, Stat)> + '_ {
    let is_below = move |mut pid: i32| {
        // A chain is short. The limit is for a snapshot in which numbers were given away.
        for _ in 0..64 {
            if pid == root {
                return true;
            }
            match processes.get(&pid) {
                Some(stat) => pid = stat.parent,
                None => return false,
            }
        }
        false
    };
    let all = processes.iter().map(|(pid, stat)| (*pid, *stat));
    all.filter(move |(pid, _)| is_below(*pid))
}

/// The time that the living threads of a process were on a CPU; 0 where the kernel does not tell.
fn threads_us(pid: i32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let nanos = threads.filter_map(|thread| {
        let line = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        line.split(' ').next()?.parse::<u64>().ok()
    });
    nanos.sum::<u64>() / 1_000
}

fn all_processes() -> HashMap<i32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        // It may have ended since the folder was read.
        let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse(&line)?))
    });
    stats.collect()
}

/// Reads a line as proc(5) describes it. The name, in parentheses, may hold anything.
fn parse(line: &str) -> Option<Stat> {
    let (_, after_name) = line.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    // The state is the third field of the line and the first one here.
    let field = |number: usize| fields.get(number - 3).copied();
    let ticks = |number: usize| field(number)?.parse::<u64>().ok();
    Some(Stat {
        parent: field(4)?.parse().ok()?,
        own_ticks: ticks(14)? + ticks(15)?,
        reaped_ticks: ticks(16)? + ticks(17)?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_line_is_read_though_the_name_holds_parentheses_and_spaces() {
        let line = "42 (a) 7 (b c) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3000 400 20 0 1 0 9 8 7";
        let expected = Stat {
            parent: 7,
            own_ticks: 120,
            reaped_ticks: 3_400,
        };
        assert_eq!(parse(line), Some(expected));
        assert_eq!(parse("42 (cut off) S 7 42"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_tree_holds_grandchildren_and_no_strangers() {
        let child_of = |parent| Stat {
            parent,
            own_ticks: 0,
            reaped_ticks: 0,
        };
        let processes = [(1, 0), (10, 1), (11, 10), (12, 11), (20, 1)];
        let processes = processes.map(|(pid, parent)| (pid, child_of(parent)));
        let processes = HashMap::from(processes);
        let mut tree: Vec<i32> = tree_below(10, &processes).map(|(pid, _)| pid).collect();
        tree.sort_unstable();
        assert_eq!(tree, [10, 11, 12]);
    }

    #[test]
    fn a_child_that_ended_still_counts() -> anyhow::Result<()> {
        let tree = ProcessTree::of(nix::unistd::getpid())?;
        let before = tree.used_us()?;
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        std::process::Command::new("sh")
            .args(["-c", work])
            .status()?;
        let until = Instant::now() + Duration::from_secs(5);
        while tree.used_us()? == before && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(tree.used_us()? > before);
        Ok(())
    }
}
