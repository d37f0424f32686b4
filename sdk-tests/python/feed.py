"""Reading change feeds to their end, and saying briefly what came."""


class Reading:
    """What one run through a feed brought, and where to go on."""

    def __init__(self, pages, continuation):
        self.pages = pages
        self.items = [item for page in pages for item in page]
        self.continuation = continuation


def continuation_of(container):
    return container.client_connection.last_response_headers["etag"]


def drain(container, **options):
    """Reads until the SDK says there is no more for now."""
    pages = [list(page) for page in container.query_items_change_feed(**options).by_page()]
    return Reading(pages, continuation_of(container))


def versions(items):
    """(id, v) of each, in the order of arrival."""
    return [(item["id"], item["v"]) for item in items]


def events(items):
    """(operation, id, v now, v before) of each, in the order of arrival."""
    seen = []
    for item in items:
        now, before = item.get("current", {}), item.get("previous", {})
        seen.append((
            item["metadata"]["operationType"], now.get("id") or before.get("id"),
            now.get("v"), before.get("v"),
        ))
    return seen


def by_key(items, what):
    """What came for each partition key, in order."""
    grouped = {}
    for item in items:
        body = item if "metadata" not in item else (item["current"] or item["previous"])
        grouped.setdefault(body["pk"], []).extend(what([item]))
    return grouped
