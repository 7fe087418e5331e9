//! What a poke stream carries (protocol, section 7).

use serde::{Deserialize, Serialize};

use crate::GraphId;

/// One message of a poke stream: an SSE event's data, or a WebSocket text frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "type")]
pub enum PokeMessage {
    /// The stream is open; ask for the list of graphs.
    #[serde(rename = "argala.hello")]
    Hello,
    /// Pull this graph.
    #[serde(rename = "argala.poke", rename_all = "camelCase")]
    Poke {
        /// The graph, as the stream's member addresses it.
        graph_id: GraphId,
    },
    /// Pokes may have been lost; ask for the list of graphs.
    #[serde(rename = "argala.resync")]
    Resync,
}
