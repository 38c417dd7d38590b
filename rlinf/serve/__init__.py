"""A policy server that speaks openpi's protocol: msgpack messages with numpy arrays over a websocket."""
