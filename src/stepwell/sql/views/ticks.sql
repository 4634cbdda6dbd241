-- The newest ticks of each schedule with their jobs.
create or replace view stepwell.ticks as
select t.schedule_id, s.owner, s.name, t.at, t.handled_at, t.job_id, t.skipped, t.triggered
from stepwell.tick t join stepwell.schedule s on s.id = t.schedule_id;

comment on view stepwell.ticks is 'The newest ticks of each schedule, each with its job or why it was skipped.';
