//! The house is in order: what review would otherwise have to look for in every change.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The most lines that a source file has, tests apart.
const MOST_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources() -> Vec<PathBuf> {
    let mut folders = vec![root().join("crates"), root().join("examples")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.expect("read a folder").path()) {
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "rs" => files.push(path),
                _ => {}
            }
        }
    }
    assert!(files.len() > 50, "found only {} source files", files.len());
    files
}

#[test]
fn every_source_file_begins_by_saying_what_it_is() {
    for file in sources() {
        let text = fs::read_to_string(&file).expect("read a source file");
        assert!(text.starts_with("//!"), "{} has no `//!` header", file.display());
    }
}

#[test]
fn no_source_file_is_too_long_to_be_one_idea() {
    let is_test = |file: &PathBuf| file.iter().any(|part| part == "tests" || part == "tests.rs");
    for file in sources().into_iter().filter(|file| !is_test(file)) {
        let text = fs::read_to_string(&file).expect("read a source file");
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines without its tests: cut it", file.display());
    }
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = ["TO".to_owned() + "DO", "FIX".to_owned() + "ME", "todo".to_owned() + "!(", "#[ig".to_owned() + "nore"];
    for file in sources() {
        let text = fs::read_to_string(&file).expect("read a source file");
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{} has a {mark}", file.display());
        }
    }
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_guarantees_name_tests_and_checks_that_exist() {
    let files = sources();
    let all: String = files.iter().map(|file| fs::read_to_string(file).expect("read a source file")).collect();
    let page = fs::read_to_string(root().join("docs/guarantees.md")).expect("read the guarantees");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 15, "found only {} promises", rows.len());
    for held_by in rows.iter().filter_map(|row| row.split('|').nth(3)) {
        for name in quoted(held_by) {
            let exists = if name.ends_with(".rs") {
                files.iter().any(|file| file.ends_with(name))
            } else {
                all.contains(&format!("fn {name}(")) || all.contains(&format!("mod {name};"))
            };
            assert!(exists, "docs/guarantees.md names {name}, which is not there");
        }
        for word in held_by.split(|c: char| !c.is_ascii_alphanumeric()) {
            let is_check = word.strip_prefix(['S', 'L']).is_some_and(|number| number.parse::<u8>().is_ok());
            assert!(
                !is_check || all.contains(&format!("\"{word}\"")),
                "docs/guarantees.md names {word}, which no simulation checks"
            );
        }
    }
}

#[test]
fn every_dependency_comes_from_the_registry_and_has_a_licence_that_deny_toml_allows() {
    let allowed = fs::read_to_string(root().join("deny.toml")).expect("read deny.toml");
    let allowed = allowed.lines().find(|line| line.starts_with("allow = ")).expect("a list of licences").to_owned();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output =
        Command::new(cargo).args(["metadata", "--format-version", "1", "--locked"]).current_dir(root()).output();
    let output = output.expect("run cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for package in metadata["packages"].as_array().expect("packages") {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or(""));
        let fine = licence.split(" OR ").flat_map(|choice| choice.split('/')).any(|choice| {
            choice.trim_matches(['(', ')', ' ']).split(" AND ").all(|part| {
                let part = part.trim_matches(['(', ')', ' ']).trim_end_matches(" WITH LLVM-exception");
                allowed.contains(&format!("\"{part}\""))
            })
        });
        assert!(fine, "{name} has the licence {licence:?}, which deny.toml does not allow");
        let source = package["source"].as_str();
        assert!(source.is_none_or(|source| source.starts_with("registry+")), "{name} comes from {source:?}");
    }
}
