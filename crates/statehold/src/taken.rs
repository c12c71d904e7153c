//! Taking something from the store without losing it: whoever stops waiting for it has not got it, and it goes back.

use statehold_core::{Error, Result};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Takes something on a task of its own, which goes on when nobody waits for it any more; then what it took is given
/// back.
pub async fn take<T, B>(
    taking: impl Future<Output = Result<T>> + Send + 'static,
    give_back: impl FnOnce(T) -> B + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    B: Future<Output = ()> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    tokio::spawn(async move {
        let taken = taking.await.map(|taken| Parcel(Some((taken, give_back))));
        // The answer may be dropped before, while or after it is sent; the parcel notices each.
        let _ = reply.send(taken);
    });
    let shut_down = || Error::unavailable("the runtime is being shut down");
    let mut parcel = answer.await.map_err(|_| shut_down())??;
    parcel.0.take().map(|(taken, _)| taken).ok_or_else(shut_down)
}

/// Something on its way to whoever asked for it. It is given back unless it is taken out.
struct Parcel<T, G, B>(Option<(T, G)>)
where
    G: FnOnce(T) -> B,
    B: Future<Output = ()> + Send + 'static;

impl<T, G, B> Drop for Parcel<T, G, B>
where
    G: FnOnce(T) -> B,
    B: Future<Output = ()> + Send + 'static,
{
    fn drop(&mut self) {
        if let Some((taken, give_back)) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(give_back(taken));
        }
    }
}
