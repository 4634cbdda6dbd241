-- How many more jobs of a queue with a limit may run, and how many of its running jobs have no permit, because they were
-- claimed before the limit was set. Room is exact under the lock of the queue (stepwell.claim_jobs).
create or replace function stepwell.queue_room(_queue text, out room integer, out uncounted integer)
language plpgsql stable
as $$
declare
  _key text := stepwell.queue_key(_queue);
  _most integer;
  _all_counted boolean;
begin
  select s.most, s.all_counted into _most, _all_counted from stepwell.queue_setting s where s.name = _queue;
  uncounted := 0;
  if not _all_counted then
    uncounted := (
      select count(*) from stepwell.job j
      where j.state = 'running' and j.worker_id is not null and j.queue = _queue
        -- As a scalar: with "exists" the planner might read all permits.
        and (select true from stepwell.permit p where p.key = _key and not p.rate and p.job_id = j.id) is null
    );
  end if;
  room := greatest(0, _most - uncounted - (
    select count(*) from (select from stepwell.permit p where p.key = _key and not p.rate limit _most) p
  ));
end
$$;
