//! The server over loopback: commands in live sessions, whole lives of sessions, many at once, and a start after a kill.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::launch::{Subject, take_turns};
use crate::boxes::Boxes;
use crate::commands;
use crate::options::Options;
use crate::process_memory::resident_bytes;
use crate::report::Report;
use crate::samples::{Samples, mib};
use crate::server::{self, Connection, Server};

const GROUP: &str = "http";
/// The floor, measured in turns with the server.
pub(crate) const FLOOR: &str = "bare fork+exec, beside the server";
/// A command in a session that is there, by one caller.
pub(crate) const EXEC: &str = "POST exec of true";
/// The floor of [`AB`]: sequential runs, as in a shell loop.
pub(crate) const LOOP: &str = "bare fork+exec, in a row";
/// The same call by `ab`, an independent client, over one connection.
pub(crate) const AB: &str = "POST exec of true, by ab";
/// What a request costs that does nothing.
const HEALTH: &str = "GET healthz";
/// Commands by several callers.
pub(crate) const RATE: &str = "execs, several connections";
/// Whole lives of sessions by several callers.
pub(crate) const LIVES: &str = "create+exec+delete, sustained";
/// Calls that failed in that time.
pub(crate) const LIVES_FAILED: &str = "create+exec+delete that failed";
/// Each of many creates at once.
pub(crate) const BURST: &str = "POST session, one of a burst";
/// Creates that failed in bursts.
pub(crate) const BURST_FAILED: &str = "creates of a burst that failed";
/// How many idle sessions there were.
pub(crate) const IDLE: &str = "idle sessions at once";
/// What the server takes with them.
pub(crate) const IDLE_MEMORY: &str = "server with idle sessions";
/// Listing them.
pub(crate) const LIST: &str = "GET sessions, all of them";
/// From the start of the next server until it answers with all sessions adopted.
pub(crate) const ADOPTED: &str = "start after kill -9, all adopted";

/// Callers at the same time.
const CALLERS: u32 = 4;
/// Callers that fill a server with sessions.
const FILLERS: u32 = 8;
/// Calls of one run of `ab`, and commands of the loop beside it.
const CALLS_OF_AB: u32 = 100;
const IDLE_SESSIONS: u32 = 1000;
const ADOPTED_SESSIONS: u32 = 200;

/// The group.
pub(crate) fn measure(_: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let state = directory.join("state-of-server");
    let server = Server::start(&state)?;
    one_caller(&server, options, report)?;
    if let Err(reason) = by_ab(&server, options, directory, report) {
        report.skip(AB, format!("{reason:#}"));
    }
    rate(&server, options, report)?;
    lives(&server, options, report);
    bursts(&server, options, report)?;
    drop(server);
    let server = Server::start(&state)?;
    idle(&server, report)?;
    drop(server);
    adoption(&state, options, report)
}

fn one_caller(server: &Server, options: &Options, report: &mut Report) -> Result<()> {
    let (mut connection, mut other) = (server.connect()?, server.connect()?);
    connection.create("live")?;
    for _ in 0..20 {
        connection.exec_true("live")?;
    }
    let floor = || Ok(vec![(FLOOR, commands::time(&mut commands::silent(commands::TRUE, &[]))?)]);
    let exec = || {
        let start = Instant::now();
        connection.exec_true("live")?;
        Ok(vec![(EXEC, start.elapsed())])
    };
    let health = || {
        let start = Instant::now();
        other.ask("GET", "/healthz", "")?;
        Ok(vec![(HEALTH, start.elapsed())])
    };
    let subjects = vec![
        Subject { name: FLOOR, every: 1, round: Box::new(floor) },
        Subject { name: EXEC, every: 1, round: Box::new(exec) },
        Subject { name: HEALTH, every: 1, round: Box::new(health) },
    ];
    for (name, samples) in take_turns(subjects, options.rounds() * 2)? {
        report.time(GROUP, name, &samples);
    }
    report.relate(EXEC, FLOOR);
    report.relate(HEALTH, FLOOR);
    server.connect()?.delete("live")
}

/// Runs of `ab` alternate with runs of the floor, so both are equally warm.
fn by_ab(server: &Server, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let ab = commands::find("STRONGBOX_AB", "ab")?;
    let (request, percentiles) = (directory.join("request.json"), directory.join("percentiles.csv"));
    std::fs::write(&request, server::exec_of_true())?;
    let address = format!("http://{}/v1/sessions/live-ab/exec", server.address());
    server.connect()?.create("live-ab")?;
    let [mut floor, mut calls] = <[Samples; 2]>::default();
    for round in 0..=options.slow_rounds() {
        let mut turn = Samples::default();
        for _ in 0..CALLS_OF_AB {
            turn.push(commands::time(&mut commands::silent(commands::TRUE, &[]))?);
        }
        let mut run = std::process::Command::new(&ab);
        run.args(["-q", "-k", "-l", "-c", "1", "-n", &CALLS_OF_AB.to_string(), "-T", "application/json", "-p"]);
        let said = commands::output(run.arg(&request).arg("-e").arg(&percentiles).arg(&address))?;
        ensure!(said.contains("Failed requests:        0") && !said.contains("Non-2xx"), "calls failed: {said}");
        // The first round warms up.
        if round > 0 {
            floor.extend(turn);
            calls.extend(read_percentiles(&std::fs::read_to_string(&percentiles)?)?);
        }
    }
    report.time(GROUP, LOOP, &floor);
    report.time(GROUP, AB, &calls);
    report.relate(AB, LOOP);
    server.connect()?.delete("live-ab")
}

/// The table of `ab`: a line for each percentile, in milliseconds. The first line is a heading.
fn read_percentiles(table: &str) -> Result<Samples> {
    let rows = table.lines().skip(1).map(|line| {
        let (_, milliseconds) = line.split_once(',').with_context(|| format!("no percentile: {line:?}"))?;
        Ok(Duration::try_from_secs_f64(milliseconds.parse::<f64>()? / 1e3)?)
    });
    rows.collect()
}

/// Runs `work` of each caller until the time is over. Returns how much was done, how much failed and how long it took.
fn for_a_while<W>(server: &Server, time: Duration, work: W) -> (u32, u32, Duration)
where
    W: Fn(&mut Connection, &str, u32) -> Result<()> + Sync,
{
    let (done, failed) = (AtomicU32::new(0), AtomicU32::new(0));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (work, done, failed) = (&work, &done, &failed);
            scope.spawn(move || {
                let Ok(mut connection) = server.connect() else { return failed.fetch_add(1, Ordering::Relaxed) };
                let mut number = 0;
                while start.elapsed() < time {
                    number += 1;
                    match work(&mut connection, &format!("c{caller}"), number) {
                        Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            eprintln!("bench: {error:#}");
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
                0
            });
        }
    });
    (done.into_inner(), failed.into_inner(), start.elapsed())
}

fn rate(server: &Server, options: &Options, report: &mut Report) -> Result<()> {
    let mut connection = server.connect()?;
    for caller in 0..CALLERS {
        connection.create(&format!("c{caller}"))?;
    }
    let work = |connection: &mut Connection, session: &str, _| connection.exec_true(session);
    let (done, failed, took) = for_a_while(server, options.seconds(10), work);
    ensure!(failed == 0, "{failed} execs failed");
    report.figure(GROUP, RATE, f64::from(done) / took.as_secs_f64(), "1/s");
    let mut connection = server.connect()?;
    (0..CALLERS).try_for_each(|caller| connection.delete(&format!("c{caller}")))
}

fn lives(server: &Server, options: &Options, report: &mut Report) {
    let work = |connection: &mut Connection, caller: &str, number| {
        let session = format!("{caller}-{number}");
        connection.create(&session)?;
        connection.exec_true(&session)?;
        connection.delete(&session)
    };
    let (done, failed, took) = for_a_while(server, options.sustained(), work);
    report.figure(GROUP, LIVES, f64::from(done) / took.as_secs_f64(), "1/s");
    report.figure(GROUP, LIVES_FAILED, f64::from(failed), "sessions");
}

/// Makes sessions by many callers at once, and returns the time of each.
fn create_all(server: &Server, name: &str, count: u32, callers: u32) -> Result<Vec<Result<Duration>>> {
    let next = AtomicU32::new(0);
    let connections: Vec<_> = (0..callers).map(|_| server.connect()).collect::<Result<_>>()?;
    Ok(std::thread::scope(|scope| {
        let next = &next;
        let threads: Vec<_> = connections
            .into_iter()
            .map(|mut connection| {
                scope.spawn(move || {
                    let mut took = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return took;
                        }
                        let start = Instant::now();
                        took.push(connection.create(&format!("{name}-{number:04}")).map(|()| start.elapsed()));
                    }
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    }))
}

fn bursts(server: &Server, options: &Options, report: &mut Report) -> Result<()> {
    let (mut each, mut failed) = (Samples::default(), 0);
    for round in 0..options.slow_rounds() {
        for took in create_all(server, &format!("burst{round}"), options.burst, options.burst)? {
            match took {
                Ok(took) => each.push(took),
                Err(_) => failed += 1,
            }
        }
        let mut connection = server.connect()?;
        for number in 0..options.burst {
            // One that failed is not there to be removed, and is counted already.
            let _ = connection.delete(&format!("burst{round}-{number:04}"));
        }
    }
    report.time(GROUP, BURST, &each);
    report.figure(GROUP, BURST_FAILED, f64::from(failed), "sessions");
    Ok(())
}

fn idle(server: &Server, report: &mut Report) -> Result<()> {
    let before = resident_bytes(server.pid())?;
    let made: Vec<Duration> = create_all(server, "idle", IDLE_SESSIONS, FILLERS)?.into_iter().collect::<Result<_>>()?;
    let mut list = Samples::default();
    for _ in 0..20 {
        let mut connection = server.connect()?;
        let start = Instant::now();
        let found = connection.ask("GET", "/v1/sessions?limit=1000", "")?;
        list.push(start.elapsed());
        ensure!(!found.is_empty(), "the list is empty");
    }
    let found = server.connect()?.list()?.len();
    ensure!(found == made.len(), "{} sessions were made and {found} are listed", made.len());
    report.figure(GROUP, IDLE, f64::from(u32::try_from(found)?), "sessions");
    report.figure(GROUP, "server without sessions", mib(before), "MiB");
    report.figure(GROUP, IDLE_MEMORY, mib(resident_bytes(server.pid())?), "MiB");
    report.time(GROUP, LIST, &list);
    Ok(())
}

fn adoption(state: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let mut server = Server::start(state)?;
    let made = create_all(&server, "kept", ADOPTED_SESSIONS, FILLERS)?;
    made.into_iter().collect::<Result<Vec<_>>>().context("making the sessions to adopt")?;
    let mut ready = Samples::default();
    for _ in 0..options.slow_rounds() {
        server.kill()?;
        let start = Instant::now();
        server = Server::start(state)?;
        let found = server.connect()?.list()?;
        ready.push(start.elapsed());
        let running = found.iter().filter(|session| session["state"] == "running").count();
        ensure!(running == usize::try_from(ADOPTED_SESSIONS)?, "{running} of {ADOPTED_SESSIONS} sessions run");
    }
    report.time(GROUP, ADOPTED, &ready);
    Ok(())
}
