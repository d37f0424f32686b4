//! `changefeed-sim`: runs seeds and reports those that break a rule.
//!
//! The report goes to stdout; broken rules also go to stderr as soon as they are found.

mod args;

use std::{
    fmt::Display,
    io::{self, Write as _},
    process::ExitCode,
    time::Instant,
};

use changefeed_sim::{
    campaign::Campaign,
    coverage::Sometimes,
    fleet,
    planted::{self, Planted},
    run::{Outcome, run},
    scenario::{Behaviour, Scenario},
    shrink::shrink,
};
use clap::Parser as _;

use crate::args::Args;

/// The first seed of `--minutes`: no other run uses these seeds.
const UNUSED_SEEDS: u64 = 1_000_000;

/// From this many seeds on, something that was never met is worth a warning.
const MANY_SEEDS: usize = 1000;

fn main() -> ExitCode {
    let args = Args::parse();
    let good = if let Some((hosts, leases)) = args.fleet {
        match run_fleet(&args, hosts, leases) {
            Ok(()) => true,
            Err(problem) => {
                eprintln!("error: {problem}");
                false
            }
        }
    } else if args.mutants {
        hunt_planted_bugs(&args)
    } else if let Some(seeds) = args.seeds.clone() {
        let next = |seed| (seed < seeds.end).then(|| draw(&args, seed));
        report(&Campaign::run(seeds.start, args.threads, args.mutant, next))
    } else if let Some(minutes) = args.minutes {
        soak(&args, minutes)
    } else {
        match scenario(&args) {
            Ok(scenario) => replay(&args, scenario),
            Err(problem) => {
                eprintln!("error: {problem}");
                return ExitCode::from(2);
            }
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes a line of the report. A reader that closes the pipe early, such as `head`, does not change the result.
fn say(line: impl Display) {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => eprintln!("error: write the report: {error}"),
        _ => {}
    }
}

/// The scenario of a seed.
fn draw(args: &Args, seed: u64) -> Scenario {
    match &args.behaviours {
        Some(behaviours) => Scenario::with(seed, &behaviours.iter().copied().flatten().collect::<Vec<_>>()),
        None => Scenario::from_seed(seed),
    }
}

fn scenario(args: &Args) -> Result<Scenario, String> {
    let Some(path) = &args.scenario else { return Ok(draw(args, args.seed.unwrap_or(0))) };
    let text = std::fs::read_to_string(path).map_err(|error| format!("read {}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{} is not a scenario: {error}", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "`--minutes` counts real time")]
fn soak(args: &Args, minutes: u64) -> bool {
    let begun = Instant::now();
    report(&Campaign::run(args.seed.unwrap_or(UNUSED_SEEDS), args.threads, args.mutant, |seed| {
        (begun.elapsed().as_secs() < minutes * 60).then(|| draw(args, seed))
    }))
}

fn report(campaign: &Campaign) -> bool {
    for (seed, violation) in &campaign.failed {
        say(format_args!("{seed}: {violation}"));
    }
    for what in Sometimes::ALL {
        say(format_args!("{:>9}  {what}", campaign.coverage.count(*what)));
    }
    if campaign.seeds() >= MANY_SEEDS {
        for what in campaign.coverage.missing() {
            say(format_args!("warning: never met: {what}"));
        }
    }
    let (hours, requests) = (campaign.host_time / 3_600_000_000, campaign.requests);
    let (delivered, again) = campaign.delivered;
    say(format_args!("{hours} host-hours, {requests} requests, {delivered} changes delivered, {again} of them again"));
    say(format_args!(
        "{} seeds, {} failed, digest {:016x}",
        campaign.seeds(),
        campaign.failed.len(),
        campaign.digest()
    ));
    campaign.failed.is_empty()
}

fn replay(args: &Args, scenario: Scenario) -> bool {
    let scenario = if args.shrink { shrink(&scenario, args.mutant) } else { scenario };
    say(scenario.to_json());
    if args.scenario.is_none() && args.behaviours.is_none() {
        say(format_args!("behaviours: {:?}", Behaviour::of_seed(scenario.seed)));
    }
    let Outcome { violation, trace, .. } = run(&scenario, args.mutant, args.trace);
    let digest = trace.digest();
    if args.trace {
        say(trace.into_text().trim_end());
    }
    match &violation {
        None => say(format_args!("seed {}: no rule broken, digest {digest:016x}", scenario.seed)),
        Some(violation) => say(format_args!("seed {}: {violation}, digest {digest:016x}", scenario.seed)),
    }
    violation.is_none()
}

/// Runs a fleet and reports what it did.
fn run_fleet(args: &Args, hosts: usize, leases: usize) -> Result<(), String> {
    let report = fleet::run(hosts, leases, |report| eprintln!("{}", report.table().trim_end()))?;
    say(report.table().trim_end());
    let Some(path) = &args.json else { return Ok(()) };
    let json = serde_json::to_string_pretty(&report).map_err(|error| format!("write the report as JSON: {error}"))?;
    std::fs::write(path, json).map_err(|error| format!("write {}: {error}", path.display()))
}

fn hunt_planted_bugs(args: &Args) -> bool {
    let mut survivors = Vec::new();
    say(format_args!("{:<28} {:>6}  found by", "planted bug", "seed"));
    for bug in Planted::ALL {
        let name = bug.to_string();
        match planted::hunt(bug, args.budget, args.threads, |seed| draw(args, seed)) {
            Some((seed, violation)) => say(format_args!("{name:<28} {seed:>6}  {violation}")),
            None => {
                say(format_args!("{name:<28} {:>6}  NOT FOUND in {} seeds", "-", args.budget));
                survivors.push(name);
            }
        }
    }
    match survivors.as_slice() {
        [] => say(format_args!("{} planted bugs, all found", Planted::ALL.len())),
        names => {
            say(format_args!("{} planted bugs, {} not found: {}", Planted::ALL.len(), names.len(), names.join(", ")))
        }
    }
    survivors.is_empty()
}
