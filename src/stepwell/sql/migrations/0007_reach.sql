-- stepwell: compatible from 6
-- Functions and views are replaced after this file.

create type stepwell.place as (
  queue text,
  rank smallint,
  run_at timestamptz
);
comment on type stepwell.place is 'Where in the order of claims a job stands: what the workers are told when it becomes ready.';
comment on column stepwell.place.queue is 'The queue of the job.';
comment on column stepwell.place.rank is 'Minus the priority.';
comment on column stepwell.place.run_at is 'Among jobs of one rank, the earliest goes first.';

-- Its parameters or result have changed.
drop function if exists stepwell.notify_ready(text[], double precision);
drop function if exists stepwell.promote_one(uuid);
drop function if exists stepwell.claim(uuid, text[], integer[], timestamptz[], uuid[], text[], integer, double precision[], bigint, boolean);
