//! What the compiler says about a delegate or an argument that does not fit: the message names the fix.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// What each program begins with; the tests add the end of the call chain.
const PROGRAM: &str = r#"
    use changefeed::{Context, DelegateError, ManualContext, Processor, RawChanges, core::Container, delegate_fn};

    #[derive(Debug)]
    pub struct Refused;
    impl std::fmt::Display for Refused {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("refused") }
    }
    impl std::error::Error for Refused {}

    pub async fn refused(_: RawChanges, _: Context) -> Result<(), Refused> { Ok(()) }
    pub async fn unsendable(_: RawChanges, _: Context) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
    pub async fn number(_: RawChanges, _: Context) -> Result<u32, DelegateError> { Ok(7) }
    pub async fn manual(_: RawChanges, _: ManualContext) -> Result<(), DelegateError> { Ok(()) }
    pub async fn automatic(_: RawChanges, _: Context) -> Result<(), DelegateError> { Ok(()) }
    pub async fn strings(_: Vec<String>, _: Context) -> Result<(), DelegateError> { Ok(()) }

    pub fn program(orders: &Container, leases: &Container) {
        let builder = Processor::builder("mailer", orders, leases);
        drop(builder"#;

/// The library that this test was linked with: the newest in the folder of the test program.
fn library() -> (PathBuf, PathBuf) {
    let program = std::env::current_exe().expect("the path of this program");
    let folder = program.parent().expect("a folder").to_owned();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libchangefeed-") && name.ends_with(".rlib")
    };
    let modified =
        |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let files = fs::read_dir(&folder).expect("read the folder").filter_map(|entry| Some(entry.ok()?.path()));
    let newest = files.filter(is_library).max_by_key(modified).expect("the library");
    (folder, newest)
}

/// What the compiler says about a program that ends with these calls.
fn compile(name: &str, calls: &str) -> Result<(), String> {
    let (folder, library) = library();
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hint_{name}.rs"));
    fs::write(&source, format!("{PROGRAM}{calls});\n}}\n")).expect("write the program");
    let output = Command::new("rustc")
        // Cargo compiles the library from here: only so the compiler finds the lines that it shows.
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--color=never", "-L"])
        .arg(format!("dependency={}", folder.display()))
        .arg(format!("--extern=changefeed={}", library.display()))
        .arg("--out-dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg(source)
        .output()
        .expect("run rustc");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[track_caller]
fn assert_hint(name: &str, calls: &str, hints: &[&str]) {
    let message = compile(name, calls).expect_err("the program must not compile");
    for hint in hints {
        assert!(message.contains(hint), "no {hint:?} in:\n{message}");
    }
}

#[test]
fn a_program_without_mistakes_compiles() {
    compile("none", ".start_from(std::time::SystemTime::now()).build(automatic)").expect("compile");
    compile("function", ".build(delegate_fn(refused))").expect("compile");
    compile("manual", ".manual_checkpoints().build(manual)").expect("compile");
}

#[test]
fn another_error_type_leads_to_delegate_fn() {
    assert_hint("refused", ".build(refused)", &["E0271", "another error: `build(delegate_fn(handle))`"]);
}

#[test]
fn an_error_that_is_not_send_is_named_with_those_that_are_accepted() {
    let hints = ["a delegate cannot fail with `Box<", "`Box<dyn std::error::Error + Send + Sync>`"];
    assert_hint("unsendable", ".build(delegate_fn(unsendable))", &hints);
}

#[test]
fn a_wrong_result_is_named_with_those_that_are_accepted() {
    let hints = ["a delegate cannot return `Ok` with `u32`", "`Ok(())` if all items were handled"];
    assert_hint("number", ".build(number)", &hints);
    assert_hint("number_fn", ".build(delegate_fn(number))", &hints);
    let closure = ".build(|_: RawChanges, _: Context| async { Ok(7) })";
    assert_hint("number_closure", closure, &["a delegate cannot return `Ok` with"]);
}

#[test]
fn a_context_of_the_other_checkpoint_mode_leads_to_manual_checkpoints() {
    let hint = "`Context`; `ManualContext` after `.manual_checkpoints()`";
    assert_hint("context", ".build(manual)", &[hint]);
    assert_hint("manual_context", ".manual_checkpoints().build(automatic)", &[hint]);
    let closure = ".build(|_: RawChanges, _: ManualContext| async { Ok(()) })";
    assert_hint("context_closure", closure, &["E0631", hint]);
}

#[test]
fn a_wrong_parameter_is_named_with_those_that_are_accepted() {
    assert_hint("strings", ".build(strings)", &["cannot deliver `Vec<", "`Changes<T>`"]);
}

#[test]
fn a_wrong_start_is_answered_with_the_types_that_are_accepted() {
    let hint = "a `StartFrom`, `Timestamp`, `SystemTime` or `Continuation`";
    assert_hint("start", ".start_from(\"beginning\").build(automatic)", &[hint]);
}
