//! A load balancer in front of the hubs, which can also cut and stall connections.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const CONNECT_MAX: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct LoadBalancer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    hubs: Mutex<Vec<SocketAddr>>,
    next: AtomicUsize,
    /// Nothing moves while this is set.
    stalled: watch::Sender<bool>,
    /// Ends the connections that are open.
    cut: Mutex<CancellationToken>,
    tasks: TaskTracker,
    over: CancellationToken,
}

impl LoadBalancer {
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            hubs: Mutex::default(),
            next: AtomicUsize::new(0),
            stalled: watch::Sender::new(false),
            cut: Mutex::default(),
            tasks: TaskTracker::new(),
            over: CancellationToken::new(),
        });
        let balancer = Self { address, shared: Arc::clone(&shared) };
        drop(shared.tasks.clone().spawn(async move {
            loop {
                let accepted = tokio::select! {
                    () = shared.over.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                if let Ok((client, _)) = accepted {
                    drop(shared.tasks.spawn(Arc::clone(&shared).carry(client)));
                }
            }
        }));
        balancer
    }

    pub fn leads_to(&self, hubs: &[SocketAddr]) {
        *self.shared.hubs.lock().unwrap() = hubs.to_vec();
    }

    pub fn cut(&self) {
        std::mem::take(&mut *self.shared.cut.lock().unwrap()).cancel();
    }

    pub fn stall(&self, stalled: bool) {
        self.shared.stalled.send_replace(stalled);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl Shared {
    /// To the next hub in turn that takes a connection.
    async fn carry(self: Arc<Self>, client: TcpStream) {
        let hubs = self.hubs.lock().unwrap().clone();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut hub = None;
        for turn in 0..hubs.len() {
            let address = hubs[(first + turn) % hubs.len()];
            if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(address)).await {
                hub = Some(stream);
                break;
            }
        }
        let Some(hub) = hub else { return };
        let cut = self.cut.lock().unwrap().clone();
        let ((from_client, to_client), (from_hub, to_hub)) = (client.into_split(), hub.into_split());
        let stalled = || self.stalled.subscribe();
        tokio::select! {
            () = cut.cancelled() => {}
            () = self.over.cancelled() => {}
            () = pump(from_client, to_hub, stalled()) => {}
            () = pump(from_hub, to_client, stalled()) => {}
        }
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut stalled: watch::Receiver<bool>) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        if stalled.wait_for(|stalled| !stalled).await.is_err() || to.write_all(&bytes[..count]).await.is_err()
        {
            return;
        }
    }
}
