//! Commands for the task of a server.

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Orders that wait to be obeyed. Two of a kind say no more than one.
const ORDERS_MAX: usize = 4;

/// A command for the task of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Restart the server.
    Restart,
    /// End the server and its task.
    End,
}

/// The other end of a supervisor.
#[derive(Debug, Clone)]
pub(super) struct Control {
    orders: mpsc::Sender<Order>,
    ended: CancellationToken,
}

impl Control {
    /// A control, the receiver of its orders, and a guard whose drop says that the task has ended.
    pub(super) fn new() -> (Self, mpsc::Receiver<Order>, DropGuard) {
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        let ended = CancellationToken::new();
        (Self { orders, ended: ended.clone() }, receiver, ended.drop_guard())
    }

    /// Wants something. A supervisor that has ended wants nothing any more.
    pub(super) fn order(&self, order: Order) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.orders.try_send(order) {
            tracing::debug!(?order, "an MCP server has orders enough");
        }
    }

    /// Ends the server, and waits for that.
    pub(super) async fn end(&self) {
        // The queue is full of orders to restart only if they came faster than they are taken, so there will be room.
        let _ = self.orders.send(Order::End).await;
        self.ended.cancelled().await;
    }
}
