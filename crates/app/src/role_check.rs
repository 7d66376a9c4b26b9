//! Whether a client's role allows a request at all.

use access::devices::Visitor;
use access::required_acts::acts;
use service::Caller;
use wire::native::{ReplyError, Request};

use super::error_replies::wrong;

pub(super) fn check(caller: &Caller, visitor: &Visitor, request: &Request) -> Result<(), ReplyError> {
    let own = |device: &String| visitor.device.as_deref() == Some(device);
    if let Request::Revoke { device } = request
        && own(device)
    {
        // Everybody may leave.
        return Ok(());
    }
    let refused = acts(request).into_iter().find_map(|act| caller.may(act).err());
    refused.map_or(Ok(()), |why| Err(wrong("forbidden", why.to_string())))
}
