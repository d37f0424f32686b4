//! A bash that runs the commands of one example in a folder of its own, and everything that they started ends with it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{document::Step, expected::matches, process::Folder};

/// The port in the document; each session uses a free one in its place.
const PORT: &str = "8081";

/// Commands that change nothing: tried again until they print what they should, since hosts need a moment.
const LOOKS: [&str; 4] =
    ["changefeed lag ", "changefeed explain ", "changefeed leases list ", "changefeed dead-letters list "];

/// How long hosts may take to come to the state that the document shows.
const LONG: Duration = Duration::from_secs(120);

/// What an example needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    Usual,
    /// It mounts a file system, which goes with the session.
    Mount,
}

pub(crate) struct Session {
    bash: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    port: String,
    commands: u32,
    _folder: Folder,
}

impl Session {
    pub(crate) fn start(rights: Rights) -> Self {
        let folder = Folder::new();
        let (program, args) = match rights {
            Rights::Usual => ("bash", Vec::new()),
            Rights::Mount => ("unshare", [mount_options(), &["bash"]].concat()),
        };
        let bin = std::path::Path::new(env!("CARGO_BIN_EXE_changefeed")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut bash = Command::new(program)
            .args(args)
            .current_dir(folder.path())
            .env("PATH", path)
            .env_remove("CHANGEFEED_KEY")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("start bash");
        let (stdin, stdout) = (bash.stdin.take().unwrap(), BufReader::new(bash.stdout.take().unwrap()));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        Self { bash, stdin, stdout, port, commands: 0, _folder: folder }
    }

    /// Runs a command; what it prints must be what the document says.
    #[expect(clippy::disallowed_methods, reason = "other processes do it, in their own time")]
    pub(crate) fn run(&mut self, step: &Step) {
        let begun = Instant::now();
        let expected: Vec<String> = step.output.iter().map(|line| line.replace(PORT, &self.port)).collect();
        let looks = LOOKS.iter().any(|look| step.command.starts_with(look));
        loop {
            let printed = self.print(&step.command.replace(PORT, &self.port));
            if matches(&expected, &printed.lines().collect::<Vec<_>>()) {
                break;
            }
            let goes_on = looks && begun.elapsed() < LONG;
            assert!(goes_on, "$ {}\nshould print\n{}\nbut prints\n{printed}", step.command, expected.join("\n"));
            std::thread::sleep(Duration::from_millis(200));
        }
        if step.command.starts_with("changefeed serve ") {
            let probe =
                format!("timeout 60 bash -c 'until echo > /dev/tcp/127.0.0.1/{}; do sleep 0.05; done'", self.port);
            let printed = self.print(&format!("{probe} 2> /dev/null; echo $?"));
            assert_eq!(printed, "0\n", "the server does not listen");
        }
    }

    /// What a command prints, on stdout and stderr.
    fn print(&mut self, command: &str) -> String {
        self.commands += 1;
        let end = format!("--- end of command {}", self.commands);
        write!(self.stdin, "{{ {command}\n}} 2>&1\necho '{end}'\n").unwrap();
        let mut printed = String::new();
        loop {
            let before = printed.len();
            assert!(self.stdout.read_line(&mut printed).unwrap() > 0, "bash ended at {command}: {printed}");
            if printed[before..].trim_end() == end {
                printed.truncate(before);
                return printed;
            }
            // What bash says of its own, such as that a process was killed.
            if printed[before..].starts_with("bash: line ") {
                printed.truncate(before);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // All processes of the example, which are in one group.
        let group = format!("-{}", self.bash.id());
        drop(Command::new("kill").args(["-s", "KILL", "--", &group]).status());
        drop(self.bash.wait());
    }
}

/// The options of `unshare` with which a mount is allowed and ends with the session: as root, or in a user namespace.
fn mount_options() -> &'static [&'static str] {
    const TRIED: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let works = |options: &&[&str]| {
        let mount = ["sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"];
        let tried = Command::new("unshare").args(options.iter().chain(&mount)).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    TRIED.into_iter().find(works).expect(
        "a test of a full disk mounts a small file system: run it as root, or where user namespaces are allowed \
         (sysctl kernel.unprivileged_userns_clone=1)",
    )
}
