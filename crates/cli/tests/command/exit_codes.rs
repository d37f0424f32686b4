//! Exit codes: those that docs/exit-codes.md has, of every sub-command.

use crate::{
    dead_letters::letters,
    help::commands,
    process::{run, text},
    shop::Shop,
};

/// The first cells of the rows that name commands.
fn documented() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    rows.map(|(command, _)| command.to_owned()).collect()
}

#[test]
fn the_document_has_every_sub_command_in_the_order_of_the_help() {
    let listed: Vec<String> = commands(&[]).iter().map(|words| words.join(" ")).collect();
    let mut documented = documented();
    let missing: Vec<_> = listed.iter().filter(|command| !documented.contains(command)).collect();
    assert!(missing.is_empty(), "add their rows to docs/exit-codes.md: {missing:?}");
    documented.retain(|command| !listed.contains(command));
    assert!(documented.is_empty(), "docs/exit-codes.md has commands that there are not: {documented:?}");
}

#[test]
fn nothing_to_do_is_no_failure_and_a_name_that_is_not_there_is_an_error() {
    let shop = Shop::in_folder();
    shop.load(1);
    let reject = ["--exec", "false", "--dead-letters", "shop/rejected", "--dead-letter-after", "1", "--log", "off"];
    shop.says(&["run"], &[&reject[..], &["--once", "--from", "beginning"]].concat());
    letters(&shop, &["purge", "--yes"]);

    assert_eq!(letters(&shop, &["list"]), "no dead letters\n");
    assert_eq!(letters(&shop, &["list", "--json"]), "");
    let redrive = ["redrive", "--container", "shop/orders"];
    assert_eq!(letters(&shop, &redrive), "no dead letter matches: nothing was done\n");
    assert_eq!(letters(&shop, &[&redrive[..], &["--json"]].concat()), "{\"done\":[],\"skipped\":[]}\n");
    assert_eq!(letters(&shop, &["purge", "--yes"]), "0 dead letters deleted\n");
    assert_eq!(shop.says(&["resume"], &[]), "nothing to do: no lease that is meant can be resumed\n");
    assert_eq!(shop.json(&["resume"], &[]), serde_json::json!([]));

    let store = shop.store();
    let show = ["dead-letters", "show", "none", "--store", &store, "--dead-letters", "shop/rejected"];
    for output in [run(&show), shop.run(&["pause"], &["--lease", "9"]), shop.run(&["explain"], &["--lease", "9"])] {
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    }
}
