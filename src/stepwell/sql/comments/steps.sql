comment on table stepwell.step is 'The saved steps of live jobs. The end of a job folds them into stepwell.history.';
comment on column stepwell.step.job_id is 'The job; no foreign key, which would be checked for each job that ends.';
comment on column stepwell.step.until is 'The end of a sleep, or the time limit of a wait; null: neither, or no limit.';
comment on column stepwell.step.n is 'The position of the step in the order in which the job reached its steps.';
comment on column stepwell.step.epoch is 'The run that saved the step. Unused: nothing reads it.';
comment on column stepwell.step.fingerprint is 'A checksum of the arguments, to detect drift; null: no arguments.';
comment on column stepwell.step.awaited is 'The group of steps in which the job waits for this one; null: none.';
comment on column stepwell.step.pending is 'A sleep, wait or child that has begun and not ended.';
comment on column stepwell.step.timed_out is 'The wait reached its time limit.';
comment on column stepwell.step.undo is 'The step is compensated if the job fails or is cancelled.';
comment on column stepwell.step.large is 'The value is in stepwell.large_value or, for a wait, in stepwell.event.';
comment on column stepwell.step.kind is
  'step, transaction, retry, sleep, wait, receive, child, first, now, random, uuid, patch, state, undo; taken: an '
  'event taken before a restart.';
comment on column stepwell.step.error is 'The type and message of the error, and the state of a child; null: none.';
comment on index stepwell.step_pending is 'Tells whether a group of steps is complete.';
comment on index stepwell.step_waiting is 'Finds the steps that wait for an event.';
comment on index stepwell.step_large_event is 'Tells whether a step still refers to the large value of an event.';

comment on table stepwell.large_value is
  'Values of steps over 64 KB, read on demand and not with each claim. They expire with the history of the job.';
