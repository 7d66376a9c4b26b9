//! Whether a client may ask for this at all.

use access::devices::Visitor;
use access::roles::acts;
use service::Caller;
use wire::native::{Request, Wrong};

use super::wrong::wrong;

pub(super) fn check(caller: &Caller, visitor: &Visitor, request: &Request) -> Result<(), Wrong> {
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
