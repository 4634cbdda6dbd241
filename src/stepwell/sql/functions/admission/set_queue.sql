-- Set what holds for all jobs of a queue, over all workers, at once: how many run at the same time (most; 0: none), how
-- many start in a time (rate in per seconds, with bursts of up to burst, or else of rate), for how many seconds jobs
-- are kept after they have succeeded (keep) or failed or were cancelled (keep_failed), and whether the queue is paused.
-- Null leaves a setting as it is. remove names settings to remove: limit, rate, keep, keep_failed. smooth is as in
-- stepwell.set_rate.
-- Limits and rates hold for jobs that wait already, too; running jobs go on, and count. keep and keep_failed hold for
-- jobs that end from now on, unless the job or its task has its own.
create or replace function stepwell.set_queue(
  queue text,
  most integer default null,
  rate integer default null,
  per double precision default 1,
  burst integer default null,
  keep double precision default null,
  keep_failed double precision default null,
  paused boolean default null,
  remove text[] default '{}',
  smooth boolean default false
) returns void
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _lateness double precision;
  _spacing double precision;
  _wrong text := (
    select r.name from unnest(set_queue.remove) as r (name)
    where (r.name = any ('{limit,rate,keep,keep_failed}'::text[])) is not true limit 1
  );
begin
  perform stepwell.check_queue(set_queue.queue);
  if set_queue.most not between 0 and 1000000 then
    raise exception using errcode = 'SW002', message = format(
      'stepwell: the limit of queue %s is %s: give 0 to 1000000', set_queue.queue, set_queue.most
    );
  end if;
  if set_queue.rate is not null then
    perform stepwell.check_rate(
      'queue ' || set_queue.queue, set_queue.rate, set_queue.per, set_queue.burst, set_queue.smooth
    );
    _lateness := case when set_queue.smooth then stepwell.lateness(set_queue.rate, set_queue.per) else 0 end;
    _spacing := (set_queue.per + _lateness) / set_queue.rate;
  elsif set_queue.burst is not null or set_queue.smooth then
    raise exception using errcode = 'SW002',
      message = 'stepwell: burst or smooth is given without rate: give the rate, too';
  end if;
  if exists (
    select from (values (set_queue.keep), (set_queue.keep_failed)) as k (seconds)
    where not (k.seconds between 0 and 3155760000 or k.seconds = 'infinity')
  ) then
    raise exception using errcode = 'SW002',
      message = 'stepwell: keep and keep_failed are seconds: give 0 to 100 years, or infinity';
  end if;
  if exists (select from unnest(set_queue.remove) as r (name) where r.name is null) or _wrong is not null then
    raise exception using errcode = 'SW002', message = format(
      'stepwell: %s is no setting that can be removed: name limit, rate, keep or keep_failed', coalesce(_wrong, 'null')
    );
  end if;

  if set_queue.most is not null or set_queue.rate is not null or set_queue.remove && '{limit,rate}' then
    insert into stepwell.queue_setting as s (name, most, spacing, burst, late, set_at)
    values (
      set_queue.queue, set_queue.most, _spacing,
      case
        when set_queue.smooth then 1
        when set_queue.rate is not null then coalesce(set_queue.burst, set_queue.rate)
      end,
      _lateness / _spacing, _now
    )
    on conflict (name) do update
    set most = case when 'limit' = any (set_queue.remove) then null else coalesce(excluded.most, s.most) end,
      spacing = case when 'rate' = any (set_queue.remove) then null else coalesce(excluded.spacing, s.spacing) end,
      burst = case when 'rate' = any (set_queue.remove) then null else coalesce(excluded.burst, s.burst) end,
      late = case
        when 'rate' = any (set_queue.remove) then null
        when excluded.spacing is null then s.late
        else excluded.late
      end,
      set_at = excluded.set_at;
    delete from stepwell.queue_setting s where s.name = set_queue.queue and s.most is null and s.spacing is null;
    perform stepwell.notify_queues(array[set_queue.queue]);
  end if;
  if set_queue.keep is not null or set_queue.keep_failed is not null or set_queue.remove && '{keep,keep_failed}' then
    insert into stepwell.queue_keep as s (name, keep, keep_failed, set_at)
    values (set_queue.queue, set_queue.keep, set_queue.keep_failed, _now)
    on conflict (name) do update
    set keep = case when 'keep' = any (set_queue.remove) then null else coalesce(excluded.keep, s.keep) end,
      keep_failed = case
        when 'keep_failed' = any (set_queue.remove) then null else coalesce(excluded.keep_failed, s.keep_failed)
      end,
      set_at = excluded.set_at;
    delete from stepwell.queue_keep s where s.name = set_queue.queue and s.keep is null and s.keep_failed is null;
  end if;
  if set_queue.paused then
    perform stepwell.pause(set_queue.queue);
  elsif not set_queue.paused then
    perform stepwell.resume(set_queue.queue);
  end if;
end
$$;
