-- Have a worker look at the lines in which these jobs are. For functions that lock jobs and leave them in line: an
-- admission meanwhile passes over them, and whoever has locked a job sees to it that it is not forgotten.
create or replace function stepwell.look_at_lines(_ids uuid[]) returns void
language plpgsql volatile
as $$
begin
  perform stepwell.notify_blocked(array(
    -- With the condition inside, the planner might read all of the index on blocked jobs.
    select distinct l.blocked_by
    from (select j.blocked_by from stepwell.job j where j.id = any (_ids) offset 0) l
    where l.blocked_by is not null
  ));
end
$$;
