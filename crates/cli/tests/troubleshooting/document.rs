//! The document: its commands and what they print.

use std::{collections::BTreeMap, fs};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/troubleshooting.md");

/// A command and the lines that it prints.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) output: Vec<String>,
}

pub(crate) struct Document {
    /// What stands before the first section with an example.
    pub(crate) prelude: Vec<Step>,
    /// The commands of each section, by its heading.
    pub(crate) examples: BTreeMap<String, Vec<Step>>,
}

impl Document {
    pub(crate) fn read() -> Self {
        let text = fs::read_to_string(PATH).unwrap();
        let mut sections = text.split("\n## ");
        let prelude = steps(sections.next().unwrap());
        let examples = sections.map(|section| {
            let (heading, body) = section.split_once('\n').unwrap();
            (heading.to_owned(), steps(body))
        });
        Self { prelude, examples: examples.collect() }
    }
}

/// The commands in the blocks `console` of a text.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line) {
            (_, "```console") => inside = true,
            (_, "```") => inside = false,
            (true, line) => match line.strip_prefix("$ ") {
                Some(command) => steps.push(Step { command: command.to_owned(), output: Vec::new() }),
                None => steps.last_mut().expect("output follows a command").output.push(line.to_owned()),
            },
            (false, _) => {}
        }
    }
    steps
}
