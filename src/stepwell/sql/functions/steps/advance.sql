-- Move running jobs to the next step of their chain, or state of their machine, with fresh attempts. A job stays with
-- its worker, unless _delays[k] delays its next step by seconds or _queues[k] names another queue for it.
-- _priorities[k] is the priority from then on; null: unchanged. _lefts[k] is the step that the job leaves, if that was
-- its first. _ns[k] is the position of the next step. At position 1 the job begins with that step, and is handed back
-- only to go to another queue: its cursor stays null, as workers of schema 13 expect, and the step gets the job's args.
-- Returns the ids refused by the fence.
-- A job that goes on at once keeps its permits for limits, so that a limit counts chains and machines as a whole. A job
-- that is delayed returns them, and queues again when it is due.
create or replace function stepwell.advance(
  _ids uuid[],
  _epochs integer[],
  _lefts text[],
  _cursors text[],
  _inputs text[],
  _ns integer[],
  _delays double precision[] default null,
  _queues text[] default null,
  _priorities integer[] default null
) returns uuid[]
language plpgsql volatile security definer
as $$
declare
  _now timestamptz := stepwell.now();
  _accepted uuid[];
  _delayed uuid[];
  _passed_on uuid[];
  _cancelling uuid[];
  _places stepwell.place[];
  _due_in double precision;
begin
  if exists (select from unnest(_queues) as q (name) where length(q.name) not between 1 and 200) then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: a queue''s name must have 1 to 200 characters';
  end if;
  if exists (select from unnest(_priorities) as p (priority) where p.priority not between -32767 and 32767) then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: priority must be between -32767 and 32767';
  end if;
  if (
    cardinality(_cursors) = cardinality(_ids) and array_position(_cursors, null) is null
    and cardinality(_ns) = cardinality(_ids) and array_position(_ns, null) is null
  ) is not true and cardinality(_ids) > 0 then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'stepwell: each job needs its next step and the position of that step';
  end if;
  perform stepwell.check_values(_inputs);
  if pg_column_size(_inputs) > 65536 then
    perform stepwell.check_sizes('step', _inputs);
  end if;
  perform stepwell.lock_to_hand_back(_ids);
  with given as materialized (
    -- A job that is named twice moves once.
    select distinct on (u.id) u.id, u.epoch, u.left_step, u.cursor, u.n, u.delay, u.queue, u.priority, j.args,
      case when u.n = 1 then j.args else u.input::json end as input
    from unnest(_ids, _epochs, _lefts, _cursors, _inputs, _ns, _delays, _queues, _priorities)
      as u (id, epoch, left_step, cursor, input, n, delay, queue, priority)
    join stepwell.job j on j.id = u.id and j.epoch = u.epoch and j.worker_id is not null
    where j.id = any (_ids)
    order by u.id
  ), begun as (
    insert into stepwell.step (job_id, saved_at, n, epoch, kind, key, value)
    select g.id, _now, 1, g.epoch, 'state', g.left_step, g.args from given g
    where g.left_step is not null and g.left_step <> g.cursor
    -- A job that started over has the steps of its earlier path.
    on conflict (job_id, key) do update set n = excluded.n, value = excluded.value
  ), entered as (
    -- Of a state that is entered repeatedly only the last input is kept, so that a machine can loop forever.
    insert into stepwell.step as s (job_id, saved_at, n, epoch, kind, key, value)
    select g.id, _now, g.n, g.epoch, 'state', g.cursor, g.input from given g
    on conflict (job_id, key) do update
    set saved_at = excluded.saved_at, n = excluded.n, epoch = excluded.epoch, value = excluded.value
  ), moved as (
    update stepwell.job j
    set cursor = case when g.n > 1 then g.cursor end, input = case when g.n > 1 then g.input end, durable = true,
      attempt = case when g.delay is null and g.queue is null then 1 else 0 end,
      worker_id = case when g.delay is null and g.queue is null then j.worker_id end,
      state = case
        when g.delay > 0 then 'waiting'::stepwell.state
        when g.delay is null and g.queue is null then j.state
        else 'ready'::stepwell.state
      end,
      run_at = case
        when g.delay is null and g.queue is null then j.run_at
        else _now + coalesce(g.delay, 0) * interval '1 second'
      end,
      queue = coalesce(g.queue, j.queue), rank = coalesce(-g.priority, j.rank), progress = null, awaits = null,
      -- Until stepwell.pass_on gives the job its turn: it must not find these jobs among those that have one.
      fair = case when g.delay is null and g.queue is null or g.delay > 0 then j.fair end
    from given g
    where j.id = any (_ids) and j.id = g.id
    returning j.id, j.queue, j.rank, j.state, j.run_at, j.cancelling, j.worker_id is null as handed_back
  )
  select array_agg(m.id), array_agg(m.id) filter (where m.handed_back and m.state = 'waiting'),
    array_agg(m.id) filter (where m.handed_back and m.state = 'ready'),
    array_agg(m.id) filter (where m.handed_back and m.cancelling),
    array_agg(row(m.queue, m.rank, m.run_at)::stepwell.place) filter (where m.state = 'ready'),
    extract(epoch from min(m.run_at) filter (where m.state = 'waiting') - _now)
  into _accepted, _delayed, _passed_on, _cancelling, _places, _due_in
  from moved m;
  if _passed_on is not null then
    perform stepwell.pass_on(_passed_on);
  end if;
  perform stepwell.release(
    _handed_back => _delayed, _places => _places, _due_in => _due_in, _cancelling => _cancelling
  );
  return array(select i.id from unnest(_ids) as i (id) except select a.id from unnest(_accepted) as a (id));
end
$$;
