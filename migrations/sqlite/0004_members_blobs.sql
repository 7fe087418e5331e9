-- Who is erased may have put or fetched blobs of graphs of which no device of theirs ever had a key.
-- Both are found by the member.

CREATE INDEX blobs_by_member ON blobs (by_member, graph);
CREATE INDEX blob_fetches_by_member ON blob_fetches (member);
