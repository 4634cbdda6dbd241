"""Telemetry: everything that happens, as values, and how each one reads in the log.

An event here is a telemetry event, not one that users emit for durable jobs. It is a frozen struct derived from
`bus.Telemetry`. Its fields are for subscribers, metrics and tests; its `line` (or `text`) is what an operator reads.
The events are grouped by theme: `enqueue`, `worker`, `jobs`, `steps`, `plugins`, `supervisor`, `embedded`. A worker
emits them on its `bus.EventBus`, which writes them to the log and hands them to subscribers. Processes without a bus
call `bus.log`.

Nothing here knows how events come about. On hot paths, ask `EventBus.wanted` before you build an event: an event that
nobody wants then costs nothing. To add an event, write the struct in the module of its theme and emit it; no list has
to be changed.
"""
