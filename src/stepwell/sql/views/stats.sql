-- How runs ended, by the minute.
create or replace view stepwell.stats as
select s.minute, s.task, s.queue, s.succeeded, s.failed, s.cancelled, s.handed_back, s.seconds from stepwell.stat s;

comment on view stepwell.stats is 'How runs ended, counted by the minute, for a week.';
