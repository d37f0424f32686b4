//! The executor: simulated time, and tasks in an order that the seed decides.
//!
//! Tasks belong to processes. A process that is stalled is not polled while time advances; one that is killed is dropped
//! between two polls, as in a crash. Time advances only when no task can run. Wake-ups are sorted before one of them is
//! drawn, so that the order in which channels wake their waiters, which tokio randomises, has no effect.

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use changefeed::runtime::BoxFuture;
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::rng::Rng;

/// More polls than this at one moment of simulated time means that a task is spinning.
const POLLS_AT_ONE_MOMENT: u32 = 200_000;

/// A poll that reads the clock more often than this does not return.
const CLOCK_READS_IN_ONE_POLL: u64 = 100_000;

/// How the message of a panic begins that a scenario wants.
pub const INJECTED: &str = "injected";

/// A simulated process; 0 is the environment, which never fails.
pub type ProcessId = usize;

/// The process of writers, servers and the nemesis.
pub const ENVIRONMENT: ProcessId = 0;

/// How the next task is chosen among those that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Order {
    /// In the order in which they became ready.
    Fifo,
    /// The youngest first: starves old ones.
    Lifo,
    /// Any.
    Random,
}

type Panic = Box<dyn Any + Send>;

struct Task {
    process: ProcessId,
    name: Arc<str>,
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    flag: Arc<TaskWaker>,
    done: Option<oneshot::Sender<Result<(), Panic>>>,
    spawned: u64,
}

struct TaskWaker {
    id: u64,
    queued: AtomicBool,
    woken: Arc<Mutex<Vec<u64>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.woken.lock().push(self.id);
        }
    }
}

#[derive(Default)]
struct Process {
    stalled: bool,
    dead: bool,
    parked: Vec<u64>,
}

struct Inner {
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    ready: VecDeque<u64>,
    processes: Vec<Process>,
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    cancelled: Vec<u64>,
    rng: Rng,
    polls: u32,
    halted: bool,
}

/// A panic that no scenario wanted.
#[derive(Clone, Debug)]
pub struct Crashed {
    /// The task.
    pub name: Arc<str>,
    /// Its message.
    pub message: String,
}

/// Why the executor stopped.
#[derive(Debug)]
pub enum Halt {
    /// The main future has ended.
    Done,
    /// No task can run, and no timer is set.
    Deadlock,
    /// Tasks run without end, and time does not advance.
    Spinning(Arc<str>),
    /// A task panicked.
    Panicked(Crashed),
}

/// Runs tasks and time. Cheap to clone.
#[derive(Clone)]
pub struct Exec {
    inner: Arc<Mutex<Inner>>,
    woken: Arc<Mutex<Vec<u64>>>,
    now: Arc<AtomicU64>,
    /// When the task that is being polled was spawned.
    spawned: Arc<AtomicU64>,
    /// How often the task that is being polled has asked for the time.
    clock_reads: Arc<AtomicU64>,
    order: Order,
}

impl std::fmt::Debug for Exec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exec(at {} us)", self.now())
    }
}

impl Exec {
    /// An executor at time 0 with no tasks.
    pub fn new(seed: u64, order: Order) -> Self {
        let inner = Inner {
            tasks: BTreeMap::new(),
            next_task: 0,
            ready: VecDeque::new(),
            processes: vec![Process::default()],
            timers: BTreeMap::new(),
            next_timer: 0,
            cancelled: Vec::new(),
            rng: Rng::new(seed, "scheduler"),
            polls: 0,
            halted: false,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            woken: Arc::default(),
            now: Arc::default(),
            spawned: Arc::default(),
            clock_reads: Arc::default(),
            order,
        }
    }

    /// Microseconds since the beginning.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// A task asks for the time; one that does so without end in a single poll is spinning.
    pub fn count_clock_read(&self) {
        let reads = self.clock_reads.fetch_add(1, Ordering::Relaxed);
        assert!(reads < CLOCK_READS_IN_ONE_POLL, "spins: a poll does not return");
    }

    /// When the task that is running now was spawned.
    pub fn running_since(&self) -> u64 {
        self.spawned.load(Ordering::Relaxed)
    }

    /// A new process.
    pub fn process(&self) -> ProcessId {
        let mut inner = self.inner.lock();
        inner.processes.push(Process::default());
        inner.processes.len() - 1
    }

    /// Whether the process was killed.
    pub fn is_dead(&self, process: ProcessId) -> bool {
        self.inner.lock().processes.get(process).is_none_or(|process| process.dead)
    }

    /// Whether the process is stalled at this moment.
    pub fn is_stalled(&self, process: ProcessId) -> bool {
        self.inner.lock().processes.get(process).is_some_and(|process| process.stalled)
    }

    /// Stops polling the process, or polls it again.
    pub fn stall(&self, process: ProcessId, stalled: bool) {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.processes.get_mut(process) else { return };
        entry.stalled = stalled;
        if !stalled {
            let parked = std::mem::take(&mut entry.parked);
            inner.ready.extend(parked);
        }
    }

    /// Ends the process at once: nothing of it runs any more, not even to the end of a write under way.
    pub fn kill(&self, process: ProcessId) {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.processes.get_mut(process) else { return };
        entry.dead = true;
        let ids: Vec<u64> = inner.tasks.iter().filter(|(_, task)| task.process == process).map(|(id, _)| *id).collect();
        inner.cancelled.extend(ids);
    }

    /// Runs a task of the environment. Nothing waits for it.
    pub fn detach(&self, name: &str, task: impl Future<Output = ()> + Send + 'static) {
        self.add(ENVIRONMENT, name, Box::pin(task), None);
    }

    /// Runs a task of a process.
    #[expect(clippy::disallowed_methods, reason = "the handle that the seam promises can only be had from tokio")]
    pub fn spawn(&self, process: ProcessId, name: &str, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        let (done, ended) = oneshot::channel();
        let id = self.add(process, name, task, Some(done));
        let cancel = Cancel { exec: self.clone(), id };
        tokio::spawn(async move {
            let cancel = cancel;
            if let Ok(Err(panic)) = ended.await {
                std::panic::resume_unwind(panic);
            }
            drop(cancel);
        })
    }

    fn add(
        &self,
        process: ProcessId,
        name: &str,
        task: BoxFuture<'static, ()>,
        done: Option<oneshot::Sender<Result<(), Panic>>>,
    ) -> u64 {
        let mut inner = self.inner.lock();
        inner.next_task += 1;
        let id = inner.next_task;
        if inner.processes.get(process).is_none_or(|process| process.dead) {
            return id;
        }
        let flag = Arc::new(TaskWaker { id, queued: AtomicBool::new(true), woken: Arc::clone(&self.woken) });
        // Tokio's channels would otherwise make tasks wait for a turn that this executor does not know.
        let future = Some(Box::pin(tokio::task::unconstrained(task)) as BoxFuture<'static, ()>);
        let waker = Waker::from(Arc::clone(&flag));
        inner.tasks.insert(id, Task { process, name: name.into(), future, waker, flag, done, spawned: self.now() });
        inner.ready.push_back(id);
        id
    }

    /// Ends after `duration`.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        self.sleep_until(self.now() + micros)
    }

    /// Ends at a moment.
    pub fn sleep_until(&self, deadline: u64) -> Sleep {
        Sleep { exec: self.clone(), deadline, key: None }
    }

    /// Runs everything until `main` has ended.
    pub async fn run(&self, main: impl Future<Output = ()> + Send + 'static) -> Halt {
        let (ended, mut over) = oneshot::channel();
        self.detach("main", async move {
            main.await;
            let _ = ended.send(());
        });
        loop {
            self.drop_cancelled();
            match self.step() {
                Step::Polled => {}
                Step::Idle => {
                    if over.try_recv().is_ok() {
                        return Halt::Done;
                    }
                    // Lets tokio drop aborted tasks and deliver results.
                    tokio::task::yield_now().await;
                    if self.is_idle() && !self.advance() {
                        return Halt::Deadlock;
                    }
                }
                Step::Halt(halt) => return halt,
            }
        }
    }

    /// Ends the run after the current step.
    pub fn halt(&self) {
        self.inner.lock().halted = true;
    }

    /// Ends everything that is left.
    pub async fn shut_down(&self) {
        let tasks = std::mem::take(&mut self.inner.lock().tasks);
        drop(tasks);
        tokio::task::yield_now().await;
        let left = std::mem::take(&mut self.inner.lock().timers);
        drop(left);
    }

    fn drop_cancelled(&self) {
        let mut inner = self.inner.lock();
        if inner.cancelled.is_empty() {
            return;
        }
        let ids = std::mem::take(&mut inner.cancelled);
        let tasks: Vec<_> = ids.into_iter().filter_map(|id| inner.tasks.remove(&id)).collect();
        drop(inner);
        // Outside the lock: what is dropped may wake others and stop timers.
        drop(tasks);
    }

    fn collect_woken(&self, inner: &mut Inner) {
        let mut woken = std::mem::take(&mut *self.woken.lock());
        woken.sort_unstable();
        inner.ready.extend(woken);
    }

    fn is_idle(&self) -> bool {
        let mut inner = self.inner.lock();
        self.collect_woken(&mut inner);
        inner.ready.is_empty() && inner.cancelled.is_empty()
    }

    /// Polls one task.
    fn step(&self) -> Step {
        let mut inner = self.inner.lock();
        if inner.halted {
            return Step::Halt(Halt::Done);
        }
        self.collect_woken(&mut inner);
        let Some(id) = inner.draw(self.order) else { return Step::Idle };
        let Some((mut future, waker, spawned, name)) = inner.take(id) else { return Step::Polled };
        inner.polls += 1;
        if inner.polls > POLLS_AT_ONE_MOMENT {
            return Step::Halt(Halt::Spinning(name));
        }
        drop(inner);
        self.spawned.store(spawned, Ordering::Relaxed);
        self.clock_reads.store(0, Ordering::Relaxed);
        let poll =
            std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker))));
        match poll {
            Ok(Poll::Pending) => {
                if let Some(task) = self.inner.lock().tasks.get_mut(&id) {
                    task.future = Some(future);
                    return Step::Polled;
                }
                drop(future);
            }
            Ok(Poll::Ready(())) => {
                drop(future);
                self.finish(id, Ok(()));
            }
            Err(panic) => {
                drop(std::panic::catch_unwind(AssertUnwindSafe(|| drop(future))));
                let message = text_of(&panic);
                self.finish(id, Err(panic));
                // Panics that a scenario injects are for the processor to handle.
                if !message.starts_with(INJECTED) {
                    return Step::Halt(Halt::Panicked(Crashed { name, message }));
                }
            }
        }
        Step::Polled
    }

    fn finish(&self, id: u64, result: Result<(), Panic>) {
        let task = self.inner.lock().tasks.remove(&id);
        if let Some(done) = task.and_then(|task| task.done) {
            drop(done.send(result));
        }
    }

    /// Moves time to the next timer; false if there is none.
    fn advance(&self) -> bool {
        let mut inner = self.inner.lock();
        let Some((&(at, _), _)) = inner.timers.first_key_value() else { return false };
        self.now.store(at.max(self.now()), Ordering::Relaxed);
        inner.polls = 0;
        while let Some(timer) = inner.timers.first_entry().filter(|timer| timer.key().0 == at) {
            // Waking only notes a number, under another lock.
            timer.remove().wake();
        }
        true
    }

    fn cancel(&self, id: u64) {
        let mut inner = self.inner.lock();
        if inner.tasks.contains_key(&id) {
            inner.cancelled.push(id);
        }
    }
}

enum Step {
    Polled,
    Idle,
    Halt(Halt),
}

impl Inner {
    fn draw(&mut self, order: Order) -> Option<u64> {
        if self.ready.is_empty() {
            return None;
        }
        let last = self.ready.len() - 1;
        let at = match order {
            Order::Fifo => 0,
            Order::Lifo => last,
            Order::Random => usize::try_from(self.rng.below(self.ready.len() as u64)).unwrap_or_default(),
        };
        self.ready.remove(at)
    }

    fn take(&mut self, id: u64) -> Option<(BoxFuture<'static, ()>, Waker, u64, Arc<str>)> {
        let task = self.tasks.get_mut(&id)?;
        let process = self.processes.get_mut(task.process)?;
        if process.stalled {
            process.parked.push(id);
            return None;
        }
        task.flag.queued.store(false, Ordering::Relaxed);
        Some((task.future.take()?, task.waker.clone(), task.spawned, Arc::clone(&task.name)))
    }
}

fn text_of(panic: &Panic) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Ends a task when the handle to it was aborted.
struct Cancel {
    exec: Exec,
    id: u64,
}

impl Drop for Cancel {
    fn drop(&mut self) {
        self.exec.cancel(self.id);
    }
}

/// Ends at a moment of simulated time.
#[derive(Debug)]
pub struct Sleep {
    exec: Exec,
    deadline: u64,
    key: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.exec.now() >= self.deadline {
            return Poll::Ready(());
        }
        let mut inner = self.exec.inner.lock();
        let key = self.key.unwrap_or_else(|| {
            inner.next_timer += 1;
            (self.deadline, inner.next_timer)
        });
        let same = inner.timers.get(&key).is_some_and(|waker| waker.will_wake(context.waker()));
        if !same {
            inner.timers.insert(key, context.waker().clone());
        }
        drop(inner);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.exec.inner.lock().timers.remove(&key);
            drop(waker);
        }
    }
}
