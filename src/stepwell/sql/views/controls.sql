-- What was asked of the fleet.
create or replace view stepwell.controls as
select c.action, c.scope, c.name, c.asked_at from stepwell.control c;

comment on view stepwell.controls is 'What is paused, and what was asked to stop.';
