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
    processor_stores::ProcessorStores,
    redact::redacted,
    store_health,
};

/// What is known of the processor as a whole.
struct ProcessorWide {
    /// What its stores say of themselves.
    problems: Vec<String>,
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
        Ok((leases, ProcessorWide { problems: problems(args, on).await, letters }))
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

/// What the stores of the processor say of themselves: that of the leases may be another one.
async fn problems(args: &ExplainArgs, on: &ProcessorStores) -> Vec<String> {
    let names = [Some(&args.processor.store.store), args.processor.lease_store.as_ref()];
    let mut problems = Vec::new();
    for (store, name) in on.stores().zip(names.into_iter().flatten()) {
        problems.extend(store_health::problems(store, &redacted(name)).await);
    }
    problems
}

impl ProcessorWide {
    fn needs_attention(&self) -> bool {
        !self.problems.is_empty() || self.letters.as_ref().is_some_and(|letters| !letters.is_none())
    }

    fn about_letters(&self) -> Option<String> {
        self.letters.as_ref().and_then(LetterCount::sentence)
    }
}

fn show_json(name: &str, leases: &[Explanation], wide: &ProcessorWide) -> Result<()> {
    wide.problems.iter().chain(&wide.about_letters()).for_each(|problem| warn(problem));
    let lease = |found| ExplainedLease {
        found,
        needs_attention: needs_attention(found.cause),
        next: advice::next(name, found),
        store_problems: &wide.problems,
        dead_letters: wide.letters.as_ref(),
    };
    print(&format!("{}\n", serde_json::to_string(&leases.iter().map(lease).collect::<Vec<_>>())?))?;
    Ok(())
}

fn show_text(name: &str, leases: &[Explanation], wide: &ProcessorWide) -> Result<()> {
    let about_stores = wide.problems.iter().map(|problem| format!("{problem}\n"));
    let about_letters = wide.about_letters().map(|letters| format!("{letters}\n"));
    let next = advice::of_all(name, leases).into_iter().map(|step| format!("next: {step}\n"));
    let lines: Vec<String> = about_stores.chain(leases.iter().map(sentence)).chain(about_letters).chain(next).collect();
    print_text(&lines.concat())?;
    Ok(())
}

/// A lease as a line for people.
pub(crate) fn sentence(found: &Explanation) -> String {
    let Explanation { lease, sentence, .. } = found;
    format!("lease {lease}: {sentence}\n")
}
