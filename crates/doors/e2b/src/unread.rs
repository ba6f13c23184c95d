//! What of a request nobody has read when its answer is there.
//!
//! Some clients send the head first and the body after it. Were the connection closed in between, they would see that instead of
//! why they were refused; so what they still send is taken, within bounds, before they are answered.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use door_http::body::discard;

/// A body that its reader may leave.
#[derive(Debug, Clone)]
pub(super) struct Unread(Arc<Mutex<Body>>);

impl Unread {
    /// The request as it was, and what will be left of its body.
    fn of(request: Request) -> (Request, Self) {
        let (parts, body) = request.into_parts();
        let unread = Self(Arc::new(Mutex::new(body)));
        (Request::from_parts(parts, Body::new(unread.clone())), unread)
    }

    /// Has a request answered; whoever is refused is first let say everything.
    pub(super) async fn heard_out<A: Future<Output = Response>>(
        request: Request,
        answer: impl FnOnce(Request) -> A,
    ) -> Response {
        let (request, unread) = Self::of(request);
        let response = answer(request).await;
        if response.status().as_u16() >= 400 {
            unread.discard().await;
        }
        response
    }

    /// Takes what is left and throws it away.
    async fn discard(self) {
        discard(&mut Body::new(self).into_data_stream()).await;
    }

    fn with<T>(&self, work: impl FnOnce(&mut Body) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl hyper::body::Body for Unread {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.with(|body| Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.with(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.with(|body| body.size_hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};

    #[tokio::test]
    async fn what_a_handler_left_is_taken() {
        let taken = Arc::new(Mutex::new(0));
        let count = Arc::clone(&taken);
        let pieces = stream::iter(0..5).map(move |_| {
            *count.lock().unwrap() += 1;
            Ok::<_, std::io::Error>(Bytes::from_static(b"piece"))
        });
        let (request, unread) = Unread::of(Request::new(Body::from_stream(pieces)));
        let mut read = request.into_body().into_data_stream();
        assert_eq!(read.next().await.unwrap().unwrap(), "piece");
        drop(read);
        assert_eq!(*taken.lock().unwrap(), 1);
        unread.discard().await;
        assert_eq!(*taken.lock().unwrap(), 5);
    }
}
