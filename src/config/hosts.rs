//! By which names clients may call a server.

use charge_once_connections::{Host, parse_host};

use super::source::Source;

/// What `ALLOWED_HOSTS` lists; nothing where it is unset.
pub(super) fn allowed(source: &Source<'_>) -> Option<Vec<Host>> {
    let Some(listed) = source.optional("ALLOWED_HOSTS") else {
        return Some(Vec::new());
    };
    let names = listed.split(',').map(str::trim);
    let hosts = names.map(|name| parse_host(name).filter(|_| !name.contains('*')));
    hosts.collect::<Option<_>>().or_else(|| {
        source.bad(
            "ALLOWED_HOSTS",
            "host names or IP addresses without ports and wildcards, with commas between them, such as \
             pay.example.com,[2001:db8::1]",
        )
    })
}
