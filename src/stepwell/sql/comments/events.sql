comment on table stepwell.event is
  'Events, for all jobs, and signals, for one. Each wait takes the oldest event that its job has not taken yet.';
comment on column stepwell.event.transaction is 'The transaction that emitted the event and delivers it at commit.';
comment on column stepwell.event.job_id is 'The job to which a signal was sent; null: an event for all jobs.';
comment on column stepwell.event.key is 'The subject of the event, such as an order number; empty: none.';
comment on column stepwell.event.delivered is 'Another event of the same transaction has delivered this one.';
comment on column stepwell.event.late is
  'The delivery is repeated until no transaction up to this one is running; 0: not repeated yet; null: no need.';
comment on column stepwell.event.late_turn is 'The transaction that last repeated the delivery; the lowest come first.';
comment on column stepwell.event.large is
  'The value is over 64 KB, so steps refer to it instead of copying it. Not set on events from before schema 6.';
comment on column stepwell.event.kept_until is
  'The value is kept until then for the history of jobs whose steps refer to it; null: no such job. New waits do not '
  'find the event by this.';
comment on index stepwell.event_name is 'Finds the events that were emitted before a wait began.';
comment on index stepwell.event_sent is 'Finds the signals of a job, first in, first out.';
comment on index stepwell.event_transaction is 'Finds the other events of a transaction.';
comment on index stepwell.event_late is 'Finds the events that stepwell.deliver_late delivers.';
