"""Change streams: events, images, tokens, history; and a collection rebuilt from its stream over crashes."""
