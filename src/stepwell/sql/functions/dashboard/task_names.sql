-- The names of tasks after _after, in order, at most _limit: those that workers name, and those of 1,000 schedules, of the
-- newest 1,000 rows of the counters, and of the newest 1,000 live jobs. None of these has an index by task. The order is
-- that of characters, as in Python, where the page adds the tasks of its own app.
create or replace function stepwell.task_names(_limit integer, _after text default null) returns text[]
language plpgsql stable
as $$
declare
  _from text := coalesce(_after, '');
  _look constant integer := 1000;
begin
  return (
    select coalesce(array_agg(f.name order by f.name collate "C"), '{}')
    from (
      select a.name
      from (
        select t.name from stepwell.worker w cross join lateral jsonb_object_keys(w.tasks) as t (name)
        union
        select s.task from (select s.task from stepwell.schedule s order by s.owner, s.name limit _look) s
        union
        select c.task from (select s.task from stepwell.stat s order by s.minute desc limit _look) c
        union
        select j.task from (select j.task from stepwell.job j order by j.id desc limit _look) j
      ) a
      where a.name collate "C" > _from
      order by a.name collate "C"
      limit _limit
    ) f
  );
end
$$;
