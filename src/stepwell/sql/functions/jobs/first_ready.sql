-- The places of the first ready jobs that this worker may claim, in each queue that matches one of these patterns (a
-- name, or a prefix followed by *): one row per rank, up to eight. The last row covers all ranks up to last_rank.
-- Notifications carry the places of new ready jobs; this function finds jobs without a notification. It walks over all
-- dead rows at the front of a queue, so workers call it rarely.
create or replace function stepwell.first_ready(_worker_id uuid, _patterns text[], _tasks text[])
returns table (queue text, rank smallint, last_rank smallint, run_at timestamptz)
language plpgsql stable security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _most_ranks constant integer := 8;  -- the same in stepwell.notify_ready
  _any_owner boolean;
  _owner text;
  _signatures integer[];
  _many_tasks jsonb := jsonb_object(array_remove(_tasks, null), array_remove(_tasks, null));
  _below integer;
  _queues text[] := array(select distinct p.name from unnest(_patterns) as p (name) where right(p.name, 1) <> '*');
begin
  select w.named is null, case when w.named then w.owner end, w.signatures into _any_owner, _owner, _signatures
  from stepwell.worker w where w.id = _worker_id;
  if exists (select from unnest(_patterns) as p (name) where right(p.name, 1) = '*') then
    _queues := array(
      select q.name from unnest(_queues) as q (name)
      union
      select r.name from stepwell.ready_queues(_patterns) as r (name)
    );
  end if;
  foreach queue in array _queues loop
    _below := -32769;
    for _ranks in 1 .. _most_ranks loop
      select j.rank, j.run_at into rank, run_at
      from stepwell.job j
      where j.state = 'ready' and j.queue = first_ready.queue and j.rank > _below
        and _many_tasks ? j.task
        and (j.owner is null or j.owner = _owner or _any_owner)
        and (j.misfits is null or j.misfit_until <= _now or not (j.misfits && _signatures))
      order by j.rank, j.run_at, j.id
      limit 1;
      exit when not found;
      last_rank := case when _ranks = _most_ranks then 32767 else rank end;
      _below := rank;
      return next;
    end loop;
  end loop;
end
$$;
