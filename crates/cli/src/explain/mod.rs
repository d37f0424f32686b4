//! `explain`: what each lease is doing, why nothing happens if nothing does, and what to do next.

mod advice;

use changefeed::{Explain, Explanation};
use serde::Serialize;

pub(crate) use self::advice::needs_attention;
use crate::{
    args::ExplainArgs,
    dead_letters::LetterCount,
    exit::{Exit, Result, print, print_text, warn},
    inspect::on,
    store_health::StoreProblems,
};

/// What is known of the processor as a whole.
struct ProcessorWide {
    /// What its stores say of themselves.
    problems: StoreProblems,
    letters: Option<LetterCount>,
}

/// A lease as JSON: what the library says, what follows from it, and what is known of the processor as a whole.
#[derive(Serialize)]
struct ExplainedLease<'a> {
    #[serde(flatten)]
    found: &'a Explanation,
    needs_attention: bool,
    next: Option<String>,
    store_problems: &'a [String],
    dead_letters: Option<&'a LetterCount>,
}

/// `changefeed explain`.
pub(crate) fn explain(args: &ExplainArgs) -> Result<Exit> {
    let (mut leases, wide) = on(&args.processor, async |on| {
        let leases = Explain::new(&on.name, &on.monitored, &on.leases).leases().await?;
        let letters = LetterCount::of(&args.letters, on, args.lease.as_deref()).await?;
        Ok((leases, ProcessorWide { problems: StoreProblems::of(&args.processor, on).await, letters }))
    })?;
    if let Some(token) = &args.lease {
        let known: Vec<String> = leases.iter().map(|found| found.lease.to_string()).collect();
        leases.retain(|found| found.lease.as_str() == token);
        if leases.is_empty() {
            return Err(format!("there is no lease {token}; there are: {}", known.join(", ")).into());
        }
    }
    match args.json {
        true => show_json(&args.processor.name, &leases, &wide)?,
        false => show_text(&args.processor.name, &leases, &wide)?,
    }
    let is_stuck = wide.needs_attention() || leases.iter().any(|found| needs_attention(found.cause));
    Ok(if is_stuck { Exit::Unhealthy } else { Exit::Good })
}

impl ProcessorWide {
    fn needs_attention(&self) -> bool {
        !self.problems.sentences.is_empty() || self.letters.as_ref().is_some_and(|letters| !letters.is_none())
    }

    /// Whether something can be done about single leases: no host can work on a store that has stopped.
    fn steps_help(&self) -> bool {
        !self.problems.has_stopped
    }

    fn about_letters(&self) -> Option<String> {
        self.letters.as_ref().and_then(LetterCount::sentence)
    }
}

fn show_json(name: &str, leases: &[Explanation], wide: &ProcessorWide) -> Result<()> {
    wide.problems.sentences.iter().chain(&wide.about_letters()).for_each(|problem| warn(problem));
    let lease = |found| ExplainedLease {
        found,
        needs_attention: needs_attention(found.cause),
        next: wide.steps_help().then(|| advice::next(name, found)).flatten(),
        store_problems: &wide.problems.sentences,
        dead_letters: wide.letters.as_ref(),
    };
    print(&format!("{}\n", serde_json::to_string(&leases.iter().map(lease).collect::<Vec<_>>())?))?;
    Ok(())
}

fn show_text(name: &str, leases: &[Explanation], wide: &ProcessorWide) -> Result<()> {
    let about_stores = wide.problems.sentences.iter().map(|problem| format!("{problem}\n"));
    let about_letters = wide.about_letters().map(|letters| format!("{letters}\n"));
    let next = if wide.steps_help() { advice::of_all(name, leases) } else { Vec::new() };
    let next = next.into_iter().map(|step| format!("next: {step}\n"));
    let lines: Vec<String> = about_stores.chain(leases.iter().map(sentence)).chain(about_letters).chain(next).collect();
    print_text(&lines.concat())?;
    Ok(())
}

/// A lease as a line for people.
pub(crate) fn sentence(found: &Explanation) -> String {
    let Explanation { lease, sentence, .. } = found;
    format!("lease {lease}: {sentence}\n")
}
