-- The workers that were asked to stop since they started, with a row for each request. A queue pattern of a worker
-- covers the queue of a request.
create or replace view stepwell.stopping_workers as
select w.id, c.scope, c.name
from stepwell.worker w
join stepwell.control c on c.action = 'stop' and c.up_to >= coalesce(w.begun, w.number)
  and case c.scope
    when 'queue' then exists (
      select from unnest(w.queues) as q (name)
      where q.name = c.name or (right(q.name, 1) = '*' and starts_with(c.name, left(q.name, -1)))
    )
    when 'task' then w.tasks ? c.name
    when 'worker' then w.id::text = c.name
    else true
  end;

comment on view stepwell.stopping_workers is 'Workers that were asked to drain and stop.';
