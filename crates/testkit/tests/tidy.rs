//! The house is in order: what review would otherwise have to look for in every change.

use std::{
    collections::{BTreeMap, BTreeSet},
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
fn the_tests_against_a_server_process_are_listed_and_at_least_thirty() {
    let page = fs::read_to_string(root().join("docs/guarantees.md")).expect("read the guarantees");
    let files =
        sources().into_iter().filter(|file| file.parent().is_some_and(|dir| dir.ends_with("cli/tests/processor")));
    let mut names = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).expect("read a source file");
        let tests =
            text.split("#[tokio::test").skip(1).filter_map(|test| test.split("async fn ").nth(1)?.split('(').next());
        names.extend(tests.map(str::to_owned));
    }
    assert!(names.len() >= 30, "found only {}", names.len());
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/guarantees.md does not list {name}");
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

/// The files of a crate with the names that they refer to, and the imports between them.
#[derive(Default)]
struct ModuleGraph {
    /// The file of each module, by its path in the crate: `["lease", "state"]`.
    files: BTreeMap<Vec<String>, PathBuf>,
    /// The modules that each module uses.
    uses: BTreeMap<Vec<String>, BTreeSet<Vec<String>>>,
}

impl ModuleGraph {
    /// Reads all sources below `src`, tests apart.
    fn read(src: &Path) -> Self {
        let mut graph = Self::default();
        for file in sources().into_iter().filter(|file| file.starts_with(src)) {
            let relative = file.strip_prefix(src).expect("below").with_extension("");
            let mut module: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if module.last().is_some_and(|name| name == "tests") {
                continue;
            }
            if module.last().is_some_and(|name| name == "mod" || name == "lib") {
                module.pop();
            }
            graph.files.insert(module, file);
        }
        let modules: Vec<_> = graph.files.keys().cloned().collect();
        for module in modules {
            let text = fs::read_to_string(&graph.files[&module]).expect("read a source file");
            let code = without_comments_and_tests(&text);
            // The crate's own list of exports imports everything by its nature.
            let uses = if module.is_empty() { BTreeSet::new() } else { graph.targets(&module, &code) };
            graph.uses.insert(module, uses);
        }
        graph
    }

    /// The modules that the code of `module` names with `crate::`, `super::`, `self::` or the name of a child.
    fn targets(&self, module: &[String], code: &str) -> BTreeSet<Vec<String>> {
        let mut targets = BTreeSet::new();
        let children = self.files.keys().filter_map(|child| match child.split_last() {
            Some((name, parent)) if parent == module => Some(format!("{name}::")),
            _ => None,
        });
        for path in paths(code).into_iter().chain(children.flat_map(|child| paths_from(code, &child))) {
            let Some(path) = absolute(module, &path) else { continue };
            // Names that a parent re-exports from a child are the child's: a child that uses them does not use the parent.
            let target = self.defining(&path);
            if target != module {
                targets.insert(target);
            }
        }
        targets
    }

    /// The module that a path leads to: the longest part of it that is a file, or the file that this one re-exports it from.
    fn defining(&self, path: &[String]) -> Vec<String> {
        let length = (0..=path.len()).rev().find(|length| self.files.contains_key(&path[..*length])).unwrap_or(0);
        let (module, rest) = path.split_at(length);
        let Some(name) = rest.first() else { return module.to_vec() };
        let text = fs::read_to_string(&self.files[module]).expect("read a source file");
        let exported = paths(&re_exports(&without_comments_and_tests(&text))).into_iter().filter_map(|export| {
            let path = absolute(module, &export)?;
            (path.last() == Some(name) && path.len() > module.len() + 1 && path.starts_with(module)).then_some(path)
        });
        exported.map(|path| self.defining(&path)).next().unwrap_or_else(|| module.to_vec())
    }

    /// Groups of modules that use each other, directly or not.
    fn cycles(&self) -> Vec<Vec<String>> {
        let reachable = |from: &Vec<String>| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(module) = next.pop() {
                next.extend(
                    self.uses.get(module).into_iter().flatten().filter(|target| seen.insert((*target).clone())),
                );
            }
            seen
        };
        let reach: BTreeMap<_, _> = self.uses.keys().map(|module| (module, reachable(module))).collect();
        let mut groups = BTreeSet::new();
        for (module, seen) in reach.iter().filter(|(module, seen)| seen.contains(**module)) {
            let group = seen.iter().filter(|other| reach.get(other).is_some_and(|back| back.contains(*module)));
            groups.insert(group.map(|module| module.join("::")).collect::<Vec<_>>());
        }
        groups.into_iter().collect()
    }
}

/// The code without comments, and without what follows the first `#[cfg(test)]` module.
fn without_comments_and_tests(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_tests = |index: usize| {
        lines[index] == "#[cfg(test)]" && lines[index + 1..].iter().any(|line| line.ends_with("mod tests {"))
    };
    let end = (0..lines.len()).find(|index| is_tests(*index)).unwrap_or(lines.len());
    let code = lines[..end].iter().map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// The statements `pub use` and `pub(...) use` of the code.
fn re_exports(code: &str) -> String {
    let statements = code.split(';').filter_map(|statement| {
        let start = statement.rfind("pub use ").or_else(|| statement.rfind("pub(crate) use "))?;
        Some(statement[start..].split_once("use ")?.1.to_owned() + ";")
    });
    statements.collect::<Vec<_>>().join("\n")
}

/// All paths that begin with `crate`, `super` or `self`, with groups in braces written out.
fn paths(code: &str) -> Vec<Vec<String>> {
    ["crate::", "super::", "self::"].into_iter().flat_map(|start| paths_from(code, start)).collect()
}

/// All paths that begin with `start`, with groups in braces written out.
fn paths_from(code: &str, start: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (index, _) in code.match_indices(start) {
        let before = code[..index].chars().next_back();
        if before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '$' || c == ':')) {
            expand(&code[index..], &[], &mut found);
        }
    }
    found
}

/// Writes out one path or group; returns the rest of the text.
fn expand<'a>(text: &'a str, before: &[String], found: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = before.to_vec();
    let mut text = text.trim_start();
    loop {
        if let Some(mut group) = text.strip_prefix('{') {
            while !group.trim_start().starts_with('}') && !group.is_empty() {
                group = expand(group, &path, found).trim_start();
                group = group.strip_prefix(',').unwrap_or(group);
            }
            return group.trim_start().strip_prefix('}').unwrap_or_default();
        }
        let length = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
        if length == 0 {
            // Not a name: a glob, which stands for the module itself, or the end of what is understood here.
            found.push(path);
            return text.strip_prefix('*').unwrap_or_else(|| text.get(1..).unwrap_or_default());
        }
        path.push(text[..length].to_owned());
        text = &text[length..];
        if let Some(rest) = text.strip_prefix("::") {
            text = rest;
            continue;
        }
        found.push(path);
        let renamed = text
            .trim_start()
            .strip_prefix("as ")
            .map(|rest| rest.trim_start_matches(|c: char| c != ',' && c != '}' && c != ';'));
        return renamed.unwrap_or(text);
    }
}

/// The path from the root of the crate; none if it leads out of the crate.
fn absolute(module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut full = if path.first()? == "crate" { Vec::new() } else { module.to_vec() };
    for name in path {
        match name.as_str() {
            "crate" | "self" => {}
            "super" => drop(full.pop()?),
            name => full.push(name.to_owned()),
        }
    }
    Some(full)
}

/// Fails if modules of a crate use each other; `modules` and `imports` are the least that must be found.
fn assert_no_import_cycle(name: &str, modules: usize, imports: usize) {
    let graph = ModuleGraph::read(&root().join("crates").join(name).join("src"));
    let (files, edges) = (graph.files.len(), graph.uses.values().map(BTreeSet::len).sum::<usize>());
    assert!(files > modules && edges > imports, "found only {files} modules, {edges} imports in {name}");
    if let Some(cycle) = graph.cycles().first() {
        let uses = cycle.iter().map(|module| {
            let path: Vec<String> = module.split("::").map(str::to_owned).collect();
            let targets = graph.uses[&path].iter().map(|target| target.join("::"));
            format!("{module} uses {}", targets.filter(|target| cycle.contains(target)).collect::<Vec<_>>().join(", "))
        });
        panic!("these modules use each other: {}\n{}", cycle.join(", "), uses.collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn no_import_cycle_exists_between_the_modules_of_the_processor() {
    assert_no_import_cycle("processor", 40, 100);
}

#[test]
fn no_import_cycle_exists_between_the_modules_of_the_store() {
    assert_no_import_cycle("embedded", 35, 150);
}

#[test]
fn no_import_cycle_exists_between_the_modules_of_the_server() {
    assert_no_import_cycle("server", 60, 150);
}

#[test]
fn no_import_cycle_exists_between_the_modules_of_the_query_language() {
    assert_no_import_cycle("query", 30, 60);
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let code = "use super::{a::B, c::{self, D as E}, f};\npub(crate) use self::g::H;\nlet x = crate::i::j(super::K);";
    let mut read: Vec<String> = paths(code).iter().map(|path| path.join("::")).collect();
    read.sort();
    assert_eq!(
        read,
        ["crate::i::j", "self::g::H", "super::K", "super::a::B", "super::c::D", "super::c::self", "super::f"]
    );
    assert_eq!(paths_from("child::f(); other::child::g(); grandchild::h();", "child::"), [["child", "f"]]);
    let module: Vec<String> = ["x", "y"].map(str::to_owned).to_vec();
    let full = |path: &str| {
        let path: Vec<String> = path.split("::").map(str::to_owned).collect();
        absolute(&module, &path).map(|path| path.join("::"))
    };
    assert_eq!(full("super::a::B").as_deref(), Some("x::a::B"));
    assert_eq!(full("self::g::H").as_deref(), Some("x::y::g::H"));
    assert_eq!(full("crate::i::j").as_deref(), Some("i::j"));
    assert_eq!(paths(&re_exports("pub use self::a::B;\nuse self::c::D;\npub(crate) use self::e::F;")).len(), 2);
}
