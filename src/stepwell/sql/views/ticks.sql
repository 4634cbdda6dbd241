-- What became of the newest ticks of each schedule.
create or replace view stepwell.ticks as
select t.schedule_id, s.owner, s.name, t.at, t.handled_at, t.job_id, t.skipped, t.triggered
from stepwell.tick t join stepwell.schedule s on s.id = t.schedule_id;

comment on view stepwell.ticks is 'The newest ticks of each schedule, with the job of each or why there is none.';
