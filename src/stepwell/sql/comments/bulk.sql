comment on table stepwell.bulk is
  'Bulk operations: changes of all jobs that match a filter. stepwell.bulk_chunk works them off, chunk by chunk.';
comment on column stepwell.bulk.id is 'The operation.';
comment on column stepwell.bulk.act is 'retry, cancel, run (now), delete or move.';
comment on column stepwell.bulk.state is
  'running; done: all that matched were looked at; stopped: by somebody, before that.';
comment on column stepwell.bulk.filter is
  'Which jobs: states, queue, task and so on, as stepwell.start_bulk takes them.';
comment on column stepwell.bulk.options is
  'How they are changed, such as the reason of a cancel or the queue of a move.';
comment on column stepwell.bulk.expected is 'How many jobs somebody has confirmed; null: nobody has counted them.';
comment on column stepwell.bulk.asked_by is 'Who asked for it.';
comment on column stepwell.bulk.as_of is 'Jobs that were enqueued, or ended, after this time are not changed.';
comment on column stepwell.bulk.started_at is 'When it was asked for.';
comment on column stepwell.bulk.finished_at is 'When it was done or stopped; null: it runs.';
comment on column stepwell.bulk.worked_at is 'The end of the last chunk, in real time.';
comment on column stepwell.bulk.next_at is 'The next chunk begins no earlier, in real time.';
comment on column stepwell.bulk.looked_to is 'The last job that was looked at: the next chunk has older ones.';
comment on column stepwell.bulk.chunk_size is
  'How many jobs the next chunk has at most: fewer after a timeout, more after quick chunks.';
comment on column stepwell.bulk.looked is 'How many jobs were looked at.';
comment on column stepwell.bulk.done is 'How many were changed.';
comment on column stepwell.bulk.skipped is 'How many matched, but could not be changed any more or need no change.';
comment on column stepwell.bulk.failed is 'How many could not be changed because of an error, such as a lock.';
comment on column stepwell.bulk.became is 'What the changed jobs became, with their numbers.';
comment on column stepwell.bulk.error is 'The last of these errors, or why a chunk failed as a whole.';
comment on index stepwell.bulk_running is 'Finds the operation whose chunk is next.';
