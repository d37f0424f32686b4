//! A proxy between clients and a server, in a process of its own, that does to requests what networks and gateways do: refuses them, loses them
//! before or after they were carried out, cuts answers in half, stalls, or is cut off altogether.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::{
    collections::BTreeMap,
    env, fmt,
    io::{self, BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    str::FromStr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};

/// The variable that makes a process of the tests a proxy: the address of the server.
const SERVER: &str = "CHANGEFEED_TEST_PROXY_OF";

/// What the lines begin with that the process of a proxy answers: the tests' own harness prints to the same place.
const SAYS: &str = "proxy: ";

/// In how many bits the answers of a second come over a slow link.
const BITS: u32 = 20;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is refused with this status, as the server refuses, and never reaches it.
    Refused(u16),
    /// A gateway answers this status with a page of its own, and the request never reaches the server.
    Html(u16),
    /// The connection ends, and the request never reaches the server.
    DroppedBefore,
    /// The server carries it out, and the connection ends without an answer.
    DroppedAfter,
    /// The server carries it out, and half of the body of the answer comes.
    Half,
    /// The server carries it out, and the answer takes this long.
    Stalled(Duration),
    /// The server carries it out, and the answer comes over a slow link: with so many bytes a second.
    Slow(usize),
    /// The server carries it out, half of the answer comes, and then nothing for as long as this.
    Stuck(Duration),
    /// A gateway gives up requests that take longer than this, with a page of its own.
    Limited(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "refused:{status}"),
            Self::Html(status) => write!(f, "html:{status}"),
            Self::DroppedBefore => f.write_str("dropped-before"),
            Self::DroppedAfter => f.write_str("dropped-after"),
            Self::Half => f.write_str("half"),
            Self::Stalled(time) => write!(f, "stalled:{}", time.as_millis()),
            Self::Slow(rate) => write!(f, "slow:{rate}"),
            Self::Stuck(time) => write!(f, "stuck:{}", time.as_millis()),
            Self::Limited(time) => write!(f, "limited:{}", time.as_millis()),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once(':').unwrap_or((text, "0"));
        let number: u64 = number.parse().map_err(|_| format!("{text} has no number"))?;
        let status = u16::try_from(number).unwrap_or(500);
        match name {
            "refused" => Ok(Self::Refused(status)),
            "html" => Ok(Self::Html(status)),
            "dropped-before" => Ok(Self::DroppedBefore),
            "dropped-after" => Ok(Self::DroppedAfter),
            "half" => Ok(Self::Half),
            "stalled" => Ok(Self::Stalled(Duration::from_millis(number))),
            "slow" => Ok(Self::Slow(usize::try_from(number).unwrap_or(usize::MAX))),
            "stuck" => Ok(Self::Stuck(Duration::from_millis(number))),
            "limited" => Ok(Self::Limited(Duration::from_millis(number))),
            _ => Err(format!("{text} is no fault")),
        }
    }
}

/// The proxy; its process is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    process: Child,
    commands: Mutex<Commands>,
    address: String,
}

/// The pipes to the process.
#[derive(Debug)]
struct Commands {
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Proxy {
    /// A proxy in front of the server at `server`.
    pub(crate) fn start(server: SocketAddr) -> Self {
        let (_, module) = module_path!().split_once("::").expect("a module of a test");
        let mut process = Command::new(env::current_exe().expect("this program"))
            .args(["--exact", &format!("{module}::proxy_process"), "--nocapture"])
            .env(SERVER, server.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start a proxy");
        let (stdin, stdout) = (process.stdin.take().expect("piped"), process.stdout.take().expect("piped"));
        let mut commands = Commands { stdin, stdout: BufReader::new(stdout) };
        let address = commands.answer();
        Self { process, commands: Mutex::new(commands), address }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next `times` requests for `call`, or for any call if that is empty, meet the fault.
    pub(crate) fn inject(&self, call: &str, fault: Fault, times: usize) {
        self.obey(&format!("inject {times} {fault} {call}"));
    }

    pub(crate) fn clear(&self) {
        self.obey("clear");
    }

    /// How many requests for `call` have come.
    pub(crate) fn count(&self, call: &str) -> usize {
        self.obey(&format!("count {call}")).parse().expect("a number")
    }

    /// How many requests have come in all.
    pub(crate) fn total(&self) -> usize {
        self.obey("total").parse().expect("a number")
    }

    /// Cuts the network: connections end, and new ones end at once.
    pub(crate) fn cut(&self) {
        self.obey("cut");
    }

    pub(crate) fn mend(&self) {
        self.obey("mend");
    }

    /// Gives the process a command and waits until it is carried out.
    fn obey(&self, command: &str) -> String {
        let mut commands = self.commands.lock().expect("no panic");
        writeln!(commands.stdin, "{command}").expect("tell the proxy");
        commands.answer()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Commands {
    fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).expect("read what the proxy answers") > 0 {
            if let Some((_, answer)) = line.split_once(SAYS) {
                return answer.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("the proxy has ended");
    }
}

/// The process of a proxy, until its stdin ends. As a test of its own, it checks that commands arrive as they were given.
#[test]
fn proxy_process() {
    let Ok(server) = env::var(SERVER) else {
        for fault in [Fault::Refused(429), Fault::Html(502), Fault::Half, Fault::Stalled(Duration::from_secs(3))] {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        return;
    };
    let server = server.parse().expect("an address");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime");
    let state = Arc::new(State::default());
    let listener = runtime.block_on(TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))).expect("listen");
    writeln!(io::stdout(), "\n{SAYS}{}", listener.local_addr().expect("an address")).expect("say where it is");
    runtime.spawn(accept(listener, server, Arc::clone(&state)));
    for command in io::stdin().lines().map_while(Result::ok) {
        writeln!(io::stdout(), "{SAYS}{}", state.obey(&command)).expect("answer");
    }
}

/// Requests whose path ends so meet the fault, so many times.
#[derive(Clone, Debug)]
struct Rule {
    call: String,
    fault: Fault,
    times: usize,
}

#[derive(Debug, Default)]
struct State {
    rules: Mutex<Vec<Rule>>,
    counts: Mutex<BTreeMap<String, usize>>,
    is_cut: AtomicBool,
    cut: Notify,
}

impl State {
    /// Counts a request and says what happens to it.
    fn meets(&self, path: &str) -> Option<Fault> {
        let call = path.rsplit('/').next().unwrap_or_default();
        *self.counts.lock().expect("no panic").entry(call.to_owned()).or_default() += 1;
        let mut rules = self.rules.lock().expect("no panic");
        let rule = rules.iter_mut().find(|rule| rule.times > 0 && (rule.call == call || rule.call.is_empty()))?;
        rule.times -= 1;
        Some(rule.fault)
    }

    /// Carries out a command; the answer.
    fn obey(&self, command: &str) -> String {
        let mut words = command.split(' ');
        let mut word = || words.next().expect("a word");
        let counts = || self.counts.lock().expect("no panic");
        match word() {
            "inject" => {
                let (times, fault) = (word().parse().expect("a number"), word().parse().expect("a fault"));
                self.rules.lock().expect("no panic").push(Rule { call: word().to_owned(), fault, times });
            }
            "clear" => self.rules.lock().expect("no panic").clear(),
            "count" => return counts().get(word()).copied().unwrap_or(0).to_string(),
            "total" => return counts().values().sum::<usize>().to_string(),
            "cut" => {
                self.is_cut.store(true, Ordering::Release);
                self.cut.notify_waiters();
            }
            "mend" => self.is_cut.store(false, Ordering::Release),
            other => panic!("{other} is no command"),
        }
        "done".to_owned()
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        if state.is_cut.load(Ordering::Acquire) {
            continue;
        }
        let state = Arc::clone(&state);
        connections.spawn(async move {
            tokio::select! {
                () = state.cut.notified() => {}
                _ = relay(client, server, &state) => {}
            }
        });
    }
}

/// Passes requests on, one after the other, until one of them ends the connection.
async fn relay(mut client: TcpStream, server: SocketAddr, state: &State) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut upstream: Option<TcpStream> = None;
    let mut rest = Vec::new();
    while let Some(request) = message(&mut client, &mut rest).await? {
        let text = String::from_utf8_lossy(&request);
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let fault = state.meets(&path);
        match fault {
            Some(Fault::Refused(status)) => {
                client.write_all(refusal(status).as_bytes()).await?;
                continue;
            }
            Some(Fault::Html(status)) => {
                client.write_all(page(status).as_bytes()).await?;
                continue;
            }
            Some(Fault::DroppedBefore) => return Ok(()),
            _ => {}
        }
        let stream = match &mut upstream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(server).await?;
                stream.set_nodelay(true)?;
                none.insert(stream)
            }
        };
        stream.write_all(&request).await?;
        let mut rest = Vec::new();
        let answered = message(stream, &mut rest);
        let answer = match fault {
            Some(Fault::Limited(limit)) => {
                tokio::select! {
                    answer = answered => answer?,
                    () = stall(limit) => return client.write_all(page(504).as_bytes()).await,
                }
            }
            _ => answered.await?,
        };
        let Some(answer) = answer else { return Ok(()) };
        match fault {
            Some(Fault::DroppedAfter) => return Ok(()),
            Some(Fault::Half) => {
                let head = head_of(&answer).unwrap_or_default();
                return client.write_all(answer.get(..(head + answer.len()) / 2).unwrap_or_default()).await;
            }
            Some(Fault::Stalled(time)) => stall(time).await,
            Some(Fault::Slow(rate)) => {
                for bit in answer.chunks((rate / BITS as usize).max(1)) {
                    client.write_all(bit).await?;
                    stall(Duration::from_secs(1) / BITS).await;
                }
                continue;
            }
            Some(Fault::Stuck(time)) => {
                let (first, rest) = answer.split_at((head_of(&answer).unwrap_or_default() + answer.len()) / 2);
                client.write_all(first).await?;
                stall(time).await;
                client.write_all(rest).await?;
                continue;
            }
            _ => {}
        }
        client.write_all(&answer).await?;
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a network that stalls does so in real time")]
async fn stall(time: Duration) {
    tokio::time::sleep(time).await;
}

/// A refusal as the server words it.
fn refusal(status: u16) -> String {
    let body = r#"{"code":"Injected","message":"Message: {\"Errors\":[\"the proxy refused\"]}\r\nActivityId: 1"}"#;
    format!(
        "HTTP/1.1 {status} Injected\r\nx-ms-activity-id: 1\r\nx-ms-retry-after-ms: 30\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A page as gateways have them.
fn page(status: u16) -> String {
    let body = "<html>Welcome to the gateway</html>";
    let length = body.len();
    format!("HTTP/1.1 {status} Gateway\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// One request or answer with its body; none at the end of the connection. `rest` holds what came after it.
async fn message(stream: &mut TcpStream, rest: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(length) = length_of(rest)
            && rest.len() >= length
        {
            let after = rest.split_off(length);
            return Ok(Some(std::mem::replace(rest, after)));
        }
        if stream.read_buf(rest).await? == 0 {
            return Ok(None);
        }
    }
}

/// The length of the message that begins here, once its head is complete.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let end = head_of(bytes)?;
    let head = String::from_utf8_lossy(bytes.get(..end)?).to_ascii_lowercase();
    let body = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
    Some(end + body)
}

/// The length of the head of the message that begins here, once it is complete.
fn head_of(bytes: &[u8]) -> Option<usize> {
    Some(bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4)
}
