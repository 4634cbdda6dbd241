-- How many more jobs of a queue with a setting may be claimed now; in how many seconds its rate allows the next one,
-- if the rate allows no more; and how many of its running jobs have no permit, because they were claimed before the
-- setting was made. Exact under the lock of the queue (stepwell.claim_jobs).
create or replace function stepwell.queue_room(
  _queue text,
  _now timestamptz,
  out room integer,
  out next_in double precision,
  out uncounted integer
)
language plpgsql stable
as $$
declare
  _longest constant double precision := 3155760000;  -- 100 years: more, added to a time, might be out of range
  _key text := stepwell.queue_key(_queue);
  _set stepwell.queue_setting;
  _bucket stepwell.bucket;
  _capacity double precision;
  _free double precision;
begin
  select s.* into _set from stepwell.queue_setting s where s.name = _queue;
  uncounted := 0;
  room := 1000000;
  if _set.most is not null then
    if not _set.all_counted then
      uncounted := (
        select count(*) from stepwell.job j
        where j.state = 'running' and j.worker_id is not null and j.queue = _queue
          -- As a scalar: with "exists" the planner might read all permits.
          and (select true from stepwell.permit p where p.key = _key and not p.rate and p.job_id = j.id) is null
      );
    end if;
    room := greatest(0, _set.most - uncounted - (
      select count(*) from (select from stepwell.permit p where p.key = _key and not p.rate limit _set.most) p
    ));
  end if;
  if _set.spacing is not null then
    select b.* into _bucket from stepwell.bucket b where b.key = _key;
    _capacity := _set.burst + coalesce(_set.late, 0);
    _free := _capacity - stepwell.missing_tokens(_bucket.used, _bucket.used_at, _capacity, _set.spacing, _now);
    room := least(room, greatest(0, floor(_free + 1e-6)));
    -- Not for each token: 20 ms of them at once, as long as the bucket can hold them.
    next_in := least(
      _longest,
      greatest(0.001, (least(_set.burst, greatest(1, ceil(0.02 / _set.spacing))) - _free) * _set.spacing)
    );
  end if;
end
$$;
