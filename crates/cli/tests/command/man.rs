//! `man`: a page for each sub-command.

use crate::process::{Folder, run, text};

#[test]
fn each_sub_command_has_a_man_page_with_its_options() {
    let folder = Folder::new();
    let dir = folder.join("man");
    let output = run(&["man", "--dir", &dir]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page =
        |name: &str| std::fs::read_to_string(format!("{dir}/{name}.1")).unwrap_or_else(|_| panic!("no page {name}"));
    assert!(page("changefeed").contains("changefeed\\-lag(1)"));
    for (name, option) in [
        ("changefeed-lag", "\\-\\-container"),
        ("changefeed-leases-import", "\\-\\-other\\-store"),
        ("changefeed-top", "\\-\\-once"),
    ] {
        let page = page(name);
        assert!(page.starts_with(".ie") || page.contains(".TH"), "{page}");
        assert!(page.contains(option), "{option} is not in {name}");
    }
    let whole = run(&["man"]);
    assert!(text(&whole.stdout).contains(".TH changefeed 1"));
    let refused = run(&["man", "--dir", "/proc/none"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("make the folder /proc/none"), "{}", text(&refused.stderr));
}
