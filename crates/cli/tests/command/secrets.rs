//! Secrets on a command line that is mistyped: what is said about it does not show them.

use crate::{
    process::{Folder, command, text},
    shop::Shop,
};

/// What must be shown nowhere: it looks like the key of an account, which has slashes.
const SECRET: &str = "c2Vjcm/0c2Vjcm/0c2Vjcm/0c2Vjcm/0c2Vjcm/0c2Vjcm/0c2Vjcm/0c2Vjcm/0c2Vjcm/0c2Vjcm/0c2Vjcg==";

/// A part of it that is long enough to be recognised.
const PART: &str = "c2Vjc";

const CONTAINERS: &str = "--container shop/orders --leases shop/leases";

/// Runs a line in which `ACCOUNT` and `SECRET` stand for the connection string and the key. It must be refused, and nothing
/// that it says may hold a part of the key; what it says.
#[track_caller]
fn refused(folder: &Folder, line: &str, account: &str, variable: Option<(&str, &str)>) -> String {
    let with_secrets = |word: &str| word.replace("ACCOUNT", account).replace("SECRET", SECRET);
    let words: Vec<String> = line.split_whitespace().map(with_secrets).collect();
    let mut command = command(&words.iter().map(String::as_str).collect::<Vec<_>>());
    command.current_dir(folder.path());
    if let Some((name, value)) = variable {
        command.env(name, with_secrets(value));
    }
    let output = command.output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!said.contains(PART), "{line} with {variable:?}: {said}");
    assert_eq!(output.status.code(), Some(2), "{line} with {variable:?}: {said}");
    assert!(said.contains("error: "), "{line} with {variable:?}: {said}");
    said
}

#[test]
fn an_account_that_is_mistyped_shows_no_key() {
    let folder = Folder::new();
    // The first three are understood, and with support for such accounts connected to.
    let understood = if cfg!(feature = "cosmos") { 3 } else { 0 };
    let accounts = [
        "AccountEndpoint=https://shop.invalid:443/;AccountKey=SECRET;",
        "\"AccountEndpoint=https://shop.invalid:443/;AccountKey=SECRET\"",
        "'AccountEndpoint=https://shop.invalid:443/;AccountKey=SECRET;'",
        "AcountEndpoint=https://shop.invalid:443/;AccountKey=SECRET;",
        "AccountEndpoint=https://shop.invalid:443/;AcountKey=SECRET;",
        "AccountEndpoint=https://shop.invalid:443/,AccountKey=SECRET",
        "AccountEndpoint=shop.invalid;accountkey=SECRET",
        "https://shop.invalid:443/;AccountKey=SECRET;",
        "AccountKey=SECRET",
    ];
    let on_account = format!("--store ACCOUNT {CONTAINERS}");
    for account in accounts.into_iter().skip(understood).map(|account| account.replace("SECRET", SECRET)) {
        for line in [
            "serve --store ACCOUNT",
            "restore --from ./backup --store ACCOUNT",
            "verify --store ACCOUNT",
            "tail --container shop/orders --store=ACCOUNT",
            "tail --container shop/orders --stor ACCOUNT",
            "tail --container shop/orders --store memory ACCOUNT",
            "tail --store memory --container ACCOUNT",
            "backup --to ./backup --store ACCOUNT",
            "load --create --count 1 --container shop/orders --store ACCOUNT",
            "throttle --seconds 1 --store ACCOUNT",
            "ACCOUNT",
            "leases ACCOUNT",
            &format!("lag mailer {on_account}"),
            &format!("run mailer --print {on_account}"),
            &format!("run mailer --print --check {on_account}"),
            &format!("lag mailer --store memory --lease-store ACCOUNT {CONTAINERS}"),
        ] {
            refused(&folder, line, &account, None);
        }
        for (line, name) in [
            ("serve", "CHANGEFEED_STORE"),
            ("verify", "CHANGEFEED_STORE"),
            ("tail --store memory", "CHANGEFEED_CONTAINER"),
            (&format!("lag mailer --store memory {CONTAINERS}"), "CHANGEFEED_LEASE_STORE"),
            (&format!("lag mailer --store memory {CONTAINERS}"), "CHANGEFEED_DEAD_LETTERS"),
        ] {
            refused(&folder, line, &account, Some((name, "ACCOUNT")));
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no folder is made with such a name");
}

#[test]
fn a_server_is_told_from_a_folder_without_its_key() {
    let folder = Folder::new();
    let account = format!("AccountEndpoint=https://shop.invalid:443/;AccountKey={SECRET};");
    let said = refused(&folder, "serve", &account, Some(("CHANGEFEED_STORE", "ACCOUNT")));
    let expected = "error: --store AccountEndpoint=https://shop.invalid:443/;AccountKey=(hidden); is no folder, and serve \
                    needs one of its own, or memory: pass --store DIR\n";
    assert_eq!(said, expected);
}

#[test]
fn urls_and_keys_that_are_mistyped_are_not_shown() {
    let shop = Shop::in_folder();
    shop.load(1);
    let store = shop.store();
    let on_shop = format!("run mailer --store {store} {CONTAINERS}");
    let (folder, account) = (&shop.folder, "");
    for url in [
        "https://10.0.0.1/services/SECRET",
        "http://hook.example/services/SECRET",
        "htps://hook.example/services/SECRET",
        "hook.example/services/SECRET",
        "https://ada:ada@10.0.0.1/SECRET",
        "https:///SECRET",
    ] {
        refused(folder, &format!("{on_shop} --webhook {url}"), account, None);
        refused(folder, &format!("{on_shop} --check --webhook {url}"), account, None);
    }
    for line in [
        "lag mailer --store http://127.0.0.1:1/SECRET",
        "lag mailer --store http://127.0.0.1:1?key=SECRET",
        "lag mailer --store http://ada:SECRET@127.0.0.1:1",
        "lag mailer --store http://127.0.0.1:1 --key-file SECRET",
        "serve --store http://127.0.0.1/SECRET",
    ] {
        let containers = if line.starts_with("lag") { CONTAINERS } else { "" };
        refused(folder, &format!("{line} {containers}"), account, None);
    }
    for place in ["ACCOUNT", "ACCOUNT/shop", "ACCOUNT/shop/", "ACCOUNT/shop/copy"] {
        let account = format!("AcountEndpoint=https://shop.invalid;AccountKey={SECRET};");
        refused(folder, &format!("{on_shop} --copy-to {place}"), &account, None);
        refused(folder, &format!("{on_shop} --check --copy-to {place}"), &account, None);
    }
    refused(folder, "serve --store memory --key-file SECRET", account, None);
    refused(folder, &format!("{on_shop} --webhook https://hook.example --webhook-secret-file SECRET"), account, None);
}

#[test]
fn the_path_of_a_webhook_is_shown_neither_by_check_nor_by_config_show() {
    let shop = Shop::in_folder();
    shop.load(1);
    let url = format!("https://hook.example/services/{SECRET}");
    let checked = shop.says(&["run"], &["--webhook", &url, "--check"]);
    assert!(checked.contains("sends each batch to https://hook.example/(hidden)"), "{checked}");
    shop.folder.write("changefeed.toml", &format!("webhook = '{url}'\n"));
    let mut show = command(&["config", "show"]);
    let shown = text(&show.current_dir(shop.folder.path()).output().unwrap().stdout);
    assert!(shown.contains("https://hook.example/(hidden)") && !shown.contains(PART), "{shown}");
    let mut help = command(&["run", "--help"]);
    let help = text(&help.current_dir(shop.folder.path()).output().unwrap().stdout);
    assert!(help.contains("--webhook") && !help.contains(PART), "{help}");
}
